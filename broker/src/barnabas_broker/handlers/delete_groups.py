"""DeleteGroups (42), v0 to v3: deletes groups without members, and their offsets.

The response is sent when the deletions are in the log of `__consumer_offsets`.
"""

from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_core.errors import ErrorCode

Result = DeleteGroupsResponse.DeletableGroupResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete groups, and return an error code for each."""
    answer = AnswerInTurns(DeleteGroupsResponse, context, environment.answers)
    begun = [
        (group_id, _deletion(environment, group_id))
        async for group_id in answer.over(dict.fromkeys(request.groups_names))
    ]
    results = [
        Result(group_id=group_id, error_code=await error if isawaitable(error) else error)
        async for group_id, error in answer.over(begun)
    ]
    return DeleteGroupsResponse(results=results)


def _deletion(environment: HandlerEnvironment, group_id: str) -> ErrorCode | Awaitable[ErrorCode]:
    return answer_of(partial(environment.groups.delete_group, group_id))
