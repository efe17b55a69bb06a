"""LeaveGroup (13), v0 to v5: removes members from a group.

From v3 on a request may remove several members, and static members by instance id (KIP-345). Before v3 the member's
error is the error of the response. v5 adds a reason.
"""

from typing import Final

from barnabas_broker.coordinators.groups.messages import LeaveResult, MemberIdentity
from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import LeaveGroupRequest, LeaveGroupResponse
from barnabas_core.errors import ApiError
from barnabas_core.loop_turns import LEAVING_MEMBERS, InSteps, in_steps

FIRST_BATCHED_VERSION: Final = 3


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: LeaveGroupRequest
) -> InSteps[LeaveGroupResponse]:
    """Remove members, and return an error code for each.

    Very many members leave in several portions. If the coordinator moves in between, the response has its error, and
    the client asks the new coordinator again.
    """
    batched = context.api_version >= FIRST_BATCHED_VERSION
    identities = [MemberIdentity(request.member_id)]
    if batched:
        identities = yield from in_steps(request.members, _identity)
    results: list[LeaveResult] = []
    try:
        for begin in range(0, max(len(identities), 1), LEAVING_MEMBERS):
            results += environment.groups.leave(request.group_id, identities[begin : begin + LEAVING_MEMBERS])
            yield 0
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not batched:
        return LeaveGroupResponse(error_code=results[0].error)
    return LeaveGroupResponse(members=(yield from in_steps(results, _member)))


def _identity(member: LeaveGroupRequest.MemberIdentity) -> MemberIdentity:
    return MemberIdentity(member.member_id, member.group_instance_id, member.reason)


def _member(result: LeaveResult) -> LeaveGroupResponse.MemberResponse:
    return LeaveGroupResponse.MemberResponse(
        member_id=result.identity.member_id,
        group_instance_id=result.identity.instance_id,
        error_code=result.error,
    )
