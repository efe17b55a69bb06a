"""SyncGroup (14), v0 to v5: the leader brings the assignment, everybody gets a part. Answered when it is in the log.

v3 brings static members; from v5 on a client must say which protocol it thinks was chosen (KIP-559).
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
    """Answer with this member's assignment, or an error from which the client continues."""
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
        throttle_time_ms=0,
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol_name,
        assignment=reply.assignment,
    )
