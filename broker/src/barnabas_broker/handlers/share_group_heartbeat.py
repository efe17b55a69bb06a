"""ShareGroupHeartbeat (76), v1: a member of a share group joins, goes on or leaves (KIP-932).

The response has the partitions that the broker assigns, and is sent when the changes of the group are committed.
"""

from collections.abc import Awaitable
from functools import partial
from typing import TypeAlias

from barnabas_broker.coordinators.modern.consumer_heartbeat import BeatReply
from barnabas_broker.coordinators.share.share_heartbeat import ShareBeat
from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.join_group import client_host
from barnabas_broker.wire.messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

Assignment: TypeAlias = ShareGroupHeartbeatResponse.Assignment


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> InSteps[ShareGroupHeartbeatResponse | Awaitable[ShareGroupHeartbeatResponse]]:
    """Pass the heartbeat to the group; return the member epoch, and the assignment if it has changed."""
    refusal = yield from _refusal(environment, context, request)
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
    return answer_of(lambda respond: environment.groups.share.beat(beat, lambda reply: respond(_response(reply))))


def _refusal(
    environment: HandlerEnvironment, context: RequestContext, request: ShareGroupHeartbeatRequest
) -> InSteps[ErrorCode]:
    """Return the error of a client without the rights, or of a cluster without share groups."""
    rights = rights_of(environment, context.client)
    if not environment.groups.share.are_on:
        return ErrorCode.UNSUPPORTED_VERSION
    if not rights.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    names = request.subscribed_topic_names or ()
    allowed = yield from in_steps(names, partial(rights.may, AclOperation.DESCRIBE, ResourceType.TOPIC))
    return ErrorCode.NONE if all(allowed) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _response(reply: BeatReply) -> ShareGroupHeartbeatResponse:
    assignment = None
    if reply.assignment is not None:
        partitions = [
            Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in reply.assignment.items()
        ]
        assignment = Assignment(topic_partitions=partitions)
    return ShareGroupHeartbeatResponse(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
