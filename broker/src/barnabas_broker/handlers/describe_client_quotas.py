"""DescribeClientQuotas (48), v0 to v1: the quotas of the entities that match a filter (KIP-546)."""

from collections.abc import Sequence
from typing import Any, Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.client_quotas import ENTITY_TYPES, IP, QuotaEntity, client_quotas
from barnabas_broker.wire.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from barnabas_core.errors import ApiError, ErrorCode

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2

EntryData = DescribeClientQuotasResponse.EntryData


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """Return the entities that match the filter, with all their quotas."""
    try:
        _check(request.components)
    except ApiError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    entries = [
        _entry(entity, quotas)
        for entity, quotas in client_quotas(environment.image).items()
        if _matches(entity, request.components, strict=request.strict)
    ]
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _check(components: Sequence[Any]) -> None:
    types = [each.entity_type for each in components]
    for each in components:
        kind, match = each.entity_type, each.match
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"an entity type is empty; allowed are {', '.join(ENTITY_TYPES)}")
        if kind not in ENTITY_TYPES:
            message = f"entity type {kind!r} is unknown; allowed are {', '.join(ENTITY_TYPES)}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, message)
        if types.count(kind) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"entity type {kind} is in the filter twice")
        if each.match_type not in (EXACT, DEFAULT, ANY):
            message = (
                f"match type {each.match_type} of {kind} is unknown; allowed are 0 (exact), 1 (default) and 2 (any)"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if (match is None) is (each.match_type == EXACT):
            message = (
                f"match {match!r} of {kind} is invalid for match type {each.match_type}; "
                "match type 0 (exact) needs a name, and the other match types need null"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if IP in types and len(types) > 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the entity type ip cannot be combined with user or client-id")


def _matches(entity: QuotaEntity, components: Sequence[Any], *, strict: bool) -> bool:
    names = dict(entity)
    if strict and len(names) != len(components):
        return False
    return all(
        each.entity_type in names and (each.match_type == ANY or names[each.entity_type] == each.match)
        for each in components
    )


def _entry(entity: QuotaEntity, quotas: Any) -> EntryData:
    return EntryData(
        entity=[EntryData.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[EntryData.ValueData(key=key, value=value) for key, value in quotas.items()],
    )
