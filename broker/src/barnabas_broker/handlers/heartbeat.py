"""Heartbeat (12), v0 to v4: keeps a member in its group; v3 adds static members."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import HeartbeatRequest, HeartbeatResponse


def handle(environment: HandlerEnvironment, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the session of a member; REBALANCE_IN_PROGRESS makes the member join again."""
    error = environment.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
