"""DeleteAcls (31), v1 to v3: deletes the ACLs that match a filter.

The error is SECURITY_DISABLED without an authorizer.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import error_fields
from barnabas_broker.handlers.describe_acls import acls_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.acl_requests import acl_filter
from barnabas_broker.security.acls.authorizer import changing, key_of
from barnabas_broker.wire.messages import DeleteAclsRequest, DeleteAclsResponse
from barnabas_core.acls import AclEntry, AclPattern
from barnabas_core.errors import ApiError, ErrorCode

DELETED_MAX: Final = 10_000
"""The maximum number of ACLs that one request may delete, as in Kafka."""

FilterResult = DeleteAclsResponse.DeleteAclsFilterResult
Acl = tuple[AclPattern, AclEntry]


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    """Delete the ACLs that match the filters; the response lists the matching ACLs of each filter."""
    answer = AnswerInTurns(DeleteAclsResponse, context, environment.answers)
    found = [await _find(environment, answer, each) async for each in answer.over(request.filters)]
    every = {acl for each in found if not isinstance(each, ApiError) for acl in each}
    if len(every) > DELETED_MAX:
        message = (
            f"the filters match {len(every)} ACLs, but one request may delete only {DELETED_MAX}: use narrower filters"
        )
        refused = ApiError(ErrorCode.INVALID_REQUEST, message)
        return DeleteAclsResponse(filter_results=[_result(refused, {}) for _ in found])
    failures = await environment.metadata_writer.change_acls(_changes(every))
    return DeleteAclsResponse(filter_results=[_result(each, failures) async for each in answer.over(found)])


async def _find(environment: HandlerEnvironment, answer: AnswerInTurns, asked: Any) -> list[Acl] | ApiError:
    try:
        patterns, wanted = acls_of(environment).patterns(), acl_filter(asked)
    except ApiError as error:
        return error.with_traceback(None)  # A traceback would keep thousands of frames alive.
    return [
        (pattern, each)
        async for pattern, entries in answer.over(patterns)
        for each in entries
        if wanted.finds(pattern, each)
    ]


def _changes(acls: Iterable[Acl]) -> dict[str, Any]:
    by_pattern: dict[AclPattern, list[AclEntry]] = {}
    for pattern, entry in acls:
        by_pattern.setdefault(pattern, []).append(entry)
    return {key_of(pattern): changing(pattern, removed=entries) for pattern, entries in by_pattern.items()}


def _result(found: list[Acl] | ApiError, failures: Mapping[str, ApiError | None]) -> FilterResult:
    if isinstance(found, ApiError):
        return FilterResult(**error_fields(found))
    matching = [_matching(pattern, entry, failures.get(key_of(pattern))) for pattern, entry in found]
    return FilterResult(error_message=None, matching_acls=matching)


def _matching(pattern: AclPattern, entry: AclEntry, error: ApiError | None) -> FilterResult.DeleteAclsMatchingAcl:
    return FilterResult.DeleteAclsMatchingAcl(
        **error_fields(error),
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
