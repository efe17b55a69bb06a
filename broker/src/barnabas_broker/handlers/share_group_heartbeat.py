"""ShareGroupHeartbeat (76), v1: a member of a share group joins, goes on or leaves (KIP-932).

The response has the partitions that the broker assigns, and is sent when the changes of the group are committed.
"""

from collections.abc import Awaitable
from functools import partial

from barnabas_broker.coordinators.share.share_heartbeat import ShareBeat
from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.consumer_group_heartbeat import refusal_of, response_of
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.join_group import client_host
from barnabas_broker.wire.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> InSteps[ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]]:
    """Pass the heartbeat to the group; return the member epoch, and the assignment if it has changed."""
    rights, share = rights_of(environment, context.client), environment.groups.share
    refusal = yield from refusal_of(rights, request.group_id, request.subscribed_topic_names, is_on=share.are_on)
    if refusal is not ErrorCode.NONE:
        return ShareGroupHeartbeatResponse(error_code=refusal)
    beat = ShareBeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=context.client.client_id or "",
        client_host=client_host(context),
        rack_id=request.rack_id,
        topic_names=request.subscribed_topic_names,
    )
    answered = partial(response_of, ShareGroupHeartbeatResponse)
    return answer_of(lambda respond: share.beat(beat, lambda reply: respond(answered(reply))))
