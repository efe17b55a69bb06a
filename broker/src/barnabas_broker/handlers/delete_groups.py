"""DeleteGroups (42), v0 to v3: deletes groups without members, and their offsets.

The response is sent when the deletions are in the log of `__consumer_offsets`.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_core.errors import ErrorCode


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    """Delete groups, and return an error code for each."""
    group_ids = list(dict.fromkeys(request.groups_names))
    if not group_ids:
        return DeleteGroupsResponse()
    return answer_of(lambda respond: _delete(environment, group_ids, respond))


def _delete(
    environment: HandlerEnvironment, group_ids: list[str], respond: Callable[[DeleteGroupsResponse], object]
) -> None:
    results: dict[str, ErrorCode] = {}

    def deleted(group_id: str, error: ErrorCode) -> None:
        results[group_id] = error
        if len(results) == len(group_ids):
            respond(_response(results))

    for group_id in group_ids:
        environment.groups.delete_group(group_id, partial(deleted, group_id))


def _response(results: dict[str, ErrorCode]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)
            for group_id, error in results.items()
        ]
    )
