"""LeaveGroup (13), v0 to v5: removes members from a group.

From v3 on a request may remove several members, and static members by instance id (KIP-345). Before v3 the member's
error is the error of the response. v5 adds a reason.
"""

from typing import Final

from barnabas_broker.coordinators.groups.messages import LeaveResult, MemberIdentity
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import LeaveGroupRequest, LeaveGroupResponse
from barnabas_core.errors import ApiError

FIRST_BATCHED_VERSION: Final = 3


def handle(environment: HandlerEnvironment, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove members, and return an error code for each."""
    batched = context.api_version >= FIRST_BATCHED_VERSION
    identities = (
        [MemberIdentity(each.member_id, each.group_instance_id, each.reason) for each in request.members]
        if batched
        else [MemberIdentity(request.member_id)]
    )
    try:
        results = environment.groups.leave(request.group_id, identities)
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if not batched:
        return LeaveGroupResponse(error_code=results[0].error)
    return LeaveGroupResponse(members=[_member(result) for result in results])


def _member(result: LeaveResult) -> LeaveGroupResponse.MemberResponse:
    return LeaveGroupResponse.MemberResponse(
        member_id=result.identity.member_id,
        group_instance_id=result.identity.instance_id,
        error_code=result.error,
    )
