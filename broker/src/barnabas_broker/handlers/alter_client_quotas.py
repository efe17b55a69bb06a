"""AlterClientQuotas (49), v0 to v1: sets and removes client quotas (KIP-546).

If one change of an entity is invalid, no quota of that entity changes.
"""

from collections import Counter
from typing import Any

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.client_quotas import QuotaChange, QuotaEntity, checked_entity
from barnabas_broker.wire.messages import AlterClientQuotasRequest, AlterClientQuotasResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

EntryData = AlterClientQuotasResponse.EntryData


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Change the quotas, or only check the changes with validate_only; return an error code for each entity."""
    answer = AnswerInTurns(AlterClientQuotasResponse, context, environment.answers)
    if not rights_of(environment, context.client).may(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return AlterClientQuotasResponse(
            entries=[_result(each, refusal) async for each in answer.over(request.entries)]
        )
    checked = [_checked(entry) async for entry in answer.over(request.entries)]
    times = Counter(each for each in checked if not isinstance(each, ApiError))
    changes = {
        entity: [QuotaChange(op.key, None if op.remove else op.value) for op in entry.ops]
        async for entity, entry in answer.along(zip(checked, request.entries, strict=True))
        if not isinstance(entity, ApiError) and times[entity] == 1
    }
    failures = await environment.metadata_writer.alter_client_quotas(changes, validate_only=request.validate_only)
    twice = ApiError(ErrorCode.INVALID_REQUEST, "the entity is given twice in this request")
    results = []
    async for entity, entry in answer.along(zip(checked, request.entries, strict=True)):
        error = entity if isinstance(entity, ApiError) else failures.get(entity) if entity in changes else twice
        results.append(_result(entry, error))
    return AlterClientQuotasResponse(entries=results)


def _checked(entry: Any) -> QuotaEntity | ApiError:
    try:
        return checked_entity([(each.entity_type, each.entity_name) for each in entry.entity])
    except ApiError as error:
        return error.with_traceback(None)  # A traceback would keep thousands of frames alive.


def _result(entry: Any, error: ApiError | None) -> EntryData:
    return EntryData(
        **error_fields(error),
        entity=[
            EntryData.EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity
        ],
    )
