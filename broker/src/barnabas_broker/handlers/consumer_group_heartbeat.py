"""ConsumerGroupHeartbeat (68), v0 and v1: a member of a consumer group joins, goes on or leaves (KIP-848).

The response has the partitions that the broker assigns, and is sent when the changes of the group are committed. v1
adds regular expressions, and the client then makes its member id.
"""

from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, TypeVar
from uuid import UUID

from barnabas_broker.coordinators.modern.consumer_heartbeat import Beat, BeatReply
from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.join_group import client_host
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ShareGroupHeartbeatResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

Owned: TypeAlias = Mapping[UUID, Sequence[int]]
ResponseT = TypeVar("ResponseT", ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> InSteps[ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]]:
    """Pass the heartbeat to the group; return the member epoch, and the assignment if it has changed."""
    rights = rights_of(environment, context.client)
    topics, is_on = request.subscribed_topic_names, environment.groups.has_consumer_groups
    refusal = yield from refusal_of(rights, request.group_id, topics, is_on=is_on)
    if refusal is not ErrorCode.NONE:
        return ConsumerGroupHeartbeatResponse(error_code=refusal)
    owned = yield from _owned(request.topic_partitions)
    beat, answered = _beat(context, request, rights, owned), partial(response_of, ConsumerGroupHeartbeatResponse)
    return answer_of(
        lambda respond: environment.groups.beat(beat, context.api_version, lambda reply: respond(answered(reply)))
    )


def refusal_of(rights: Rights, group_id: str, topics: Sequence[str] | None, *, is_on: bool) -> InSteps[ErrorCode]:
    """Return the error of a client without the rights, or of a cluster without groups of this type (`is_on`)."""
    if not is_on:
        return ErrorCode.UNSUPPORTED_VERSION
    if not rights.may(AclOperation.READ, ResourceType.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    allowed = yield from in_steps(topics or (), partial(rights.may, AclOperation.DESCRIBE, ResourceType.TOPIC))
    return ErrorCode.NONE if all(allowed) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _beat(context: RequestContext, request: ConsumerGroupHeartbeatRequest, rights: Rights, owned: Owned | None) -> Beat:
    return Beat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        client_id=context.client.client_id or "",
        client_host=client_host(context),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=request.subscribed_topic_names,
        topic_regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=owned,
        may_describe=partial(rights.may_see, AclOperation.DESCRIBE, ResourceType.TOPIC),
    )


def _owned(topics: Sequence[ConsumerGroupHeartbeatRequest.TopicPartitions] | None) -> InSteps[Owned | None]:
    if topics is None:
        return None
    owned: dict[UUID, Sequence[int]] = {}

    def add(each: ConsumerGroupHeartbeatRequest.TopicPartitions) -> None:
        if each.topic_id is not None:
            owned[each.topic_id] = each.partitions

    yield from in_steps(topics, add)
    return owned


def response_of(response: type[ResponseT], reply: BeatReply) -> ResponseT:
    """Return the response to the heartbeat of a member of a consumer group or a share group."""
    assignment = None
    if reply.assignment is not None:
        partitions = [
            response.Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(numbers))
            for topic_id, numbers in reply.assignment.items()
        ]
        assignment = response.Assignment(topic_partitions=partitions)
    return response(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id,
        member_epoch=reply.epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        assignment=assignment,
    )
