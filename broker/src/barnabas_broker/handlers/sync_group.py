"""SyncGroup (14), v0 to v5: the group leader sends the assignments, and each member receives its own.

The response is sent when the assignments are in the log. v3 adds static members; from v5 on a member must send the
protocol that it expects (KIP-559).
"""

from collections.abc import Awaitable
from typing import Final

from barnabas_broker.coordinators.groups.messages import SyncReply, SyncRequest
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import SyncGroupRequest, SyncGroupResponse
from barnabas_core.errors import ErrorCode

FIRST_WITH_PROTOCOL: Final = 5


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Return the assignment of the member, or an error."""
    if context.api_version >= FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return _response(SyncReply(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    sync = SyncRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    return answer_of(lambda respond: environment.groups.sync(sync, lambda reply: respond(_response(reply))))


def _response(reply: SyncReply) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
