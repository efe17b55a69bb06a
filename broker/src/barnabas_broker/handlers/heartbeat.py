"""Heartbeat (12), v0 to v4: a member lives. v3 brings static members."""

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import HeartbeatRequest, HeartbeatResponse


def handle(environment: HandlerEnvironment, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    """Extend the session of a member; the answer REBALANCE_IN_PROGRESS makes it rejoin."""
    error = environment.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(throttle_time_ms=0, error_code=error)
