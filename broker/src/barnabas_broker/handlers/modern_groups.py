"""The heartbeats and descriptions of consumer groups and share groups, whose coordinator assigns partitions.

ConsumerGroupHeartbeat (68), v0 and v1: a member of a consumer group joins, goes on or leaves (KIP-848). The response
has the partitions that the broker assigns, and is sent when the changes of the group are committed. v1 adds regular
expressions, and the client then makes its member id.

ConsumerGroupDescribe (69), v0 and v1: the state, epochs and members of consumer groups (KIP-848). A group of another
type, or one that does not exist, has the error GROUP_ID_NOT_FOUND. v1 adds the type of each member.

ShareGroupHeartbeat (76), v1: a member of a share group joins, goes on or leaves (KIP-932). The response has the
partitions that the broker assigns, and is sent when the changes of the group are committed.

ShareGroupDescribe (77), v1: the state, epochs and members of share groups (KIP-932). A group of another type, or one
that does not exist, has the error GROUP_ID_NOT_FOUND.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.modern.consumer_heartbeat import Beat, BeatReply
from barnabas_broker.coordinators.modern.group import ModernGroup, ModernMember
from barnabas_broker.coordinators.share.share_heartbeat import ShareBeat
from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, answer_of, rights_of, stepwise
from barnabas_broker.handlers.classic_groups import client_host
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import NOT_ASKED
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps

Owned: TypeAlias = Mapping[UUID, Sequence[int]]
HeartbeatResponseT = TypeVar("HeartbeatResponseT", ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)


@stepwise
def consumer_group_heartbeat(
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
        lambda answer: environment.groups.beat(beat, context.api_version, lambda reply: answer(answered(reply)))
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


def response_of(response: type[HeartbeatResponseT], reply: BeatReply) -> HeartbeatResponseT:
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


DescribedConsumer: TypeAlias = ConsumerGroupDescribeResponse.DescribedGroup.Member
DescribeResponseT = TypeVar("DescribeResponseT", ConsumerGroupDescribeResponse, ShareGroupDescribeResponse)
AssignmentT = TypeVar(
    "AssignmentT", DescribedConsumer.Assignment, ShareGroupDescribeResponse.DescribedGroup.Member.Assignment
)
CLASSIC, CONSUMER = 0, 1


class GroupKind(msgspec.Struct, frozen=True):
    """The ways in which consumer groups and share groups differ here."""

    is_on: bool
    """True if the cluster has groups of this kind."""
    find: Callable[[str], ModernGroup]
    """Return the group with an id. Raises ApiError."""
    assignor_of: Callable[[Any], str]
    member: Callable[[ModernMember], Any]
    """Describe a member."""


async def consumer_group_describe(
    environment: HandlerEnvironment, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Return the description of each group."""
    groups, member = environment.groups, partial(_described_consumer, environment)
    kind = GroupKind(groups.has_consumer_groups, groups.describe_consumer_group, groups.assignor_of, member)
    return await described(environment, context, request, ConsumerGroupDescribeResponse, kind)


async def described(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: ConsumerGroupDescribeRequest | ShareGroupDescribeRequest,
    response: type[DescribeResponseT],
    kind: GroupKind,
) -> DescribeResponseT:
    """Return the response with the description of each group."""
    rights = rights_of(environment, context.client)
    answer = AnswerInTurns(response, context, environment.answers)
    groups = []
    async for group_id in answer.over(request.group_ids):
        facts: dict[str, Any] = {"group_id": group_id, "authorized_operations": set(NOT_ASKED)}
        try:
            group = await _described_group(answer, rights, kind, group_id)
        except ApiError as error:
            facts |= {"error_code": error.code, "error_message": error.message}
        else:
            if request.include_authorized_operations:
                facts["authorized_operations"] = rights.operations(ResourceType.GROUP, group_id)
            members = list(group.members.values())
            facts |= {
                "group_state": group.state.value,
                "group_epoch": group.epoch,
                "assignment_epoch": group.assignment_epoch,
                "assignor_name": kind.assignor_of(group),
                "members": await answer.elements(("groups", "members"), members, kind.member),
            }
        groups.append(answer.encoded(("groups",), response.DescribedGroup(**facts)))
    return response(groups=groups)


async def _described_group(answer: AnswerInTurns, rights: Rights, kind: GroupKind, group_id: str) -> ModernGroup:
    """Return a group. Raises ApiError if there is none, or if the client may not describe it with its topics."""
    if not kind.is_on:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if not rights.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    group = kind.find(group_id)
    async for name in answer.over(group.all_topics()):
        if not rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            message = "the group has a topic that the client may not describe"
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    return group


def _described_consumer(environment: HandlerEnvironment, member: ModernMember) -> DescribedConsumer:
    metadata, current = member.known, member.current
    assigned = {
        topic_id: {*current.assigned.get(topic_id, ()), *current.revoking.get(topic_id, ())}
        for topic_id in current.assigned.keys() | current.revoking.keys()
    }
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.subscribed_topic_names),
        subscribed_topic_regex=metadata.subscribed_topic_regex,
        assignment=assignment_of(DescribedConsumer.Assignment, environment, assigned),
        target_assignment=assignment_of(DescribedConsumer.Assignment, environment, member.target),
        member_type=CONSUMER if metadata.classic_member_metadata is None else CLASSIC,
    )


def assignment_of(
    assignment: type[AssignmentT], environment: HandlerEnvironment, partitions: Mapping[UUID, Iterable[int]]
) -> AssignmentT:
    """Return an assignment with the names of the topics, without those that were deleted."""
    names = ((topic_id, environment.image.topic_name(topic_id)) for topic_id in sorted(partitions))
    topics = [
        assignment.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(partitions[topic_id]))
        for topic_id, name in names
        if name is not None
    ]
    return assignment(topic_partitions=topics)


@stepwise
def share_group_heartbeat(
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
    return answer_of(lambda answer: share.beat(beat, lambda reply: answer(answered(reply))))


DescribedShareMember: TypeAlias = ShareGroupDescribeResponse.DescribedGroup.Member
SHARE_ASSIGNOR: Final = "simple"


async def share_group_describe(
    environment: HandlerEnvironment, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Return the description of each group."""
    share, member = environment.groups.share, partial(_described_share_member, environment)
    kind = GroupKind(share.are_on, share.group, lambda _: SHARE_ASSIGNOR, member)
    return await described(environment, context, request, ShareGroupDescribeResponse, kind)


def _described_share_member(environment: HandlerEnvironment, member: ModernMember) -> DescribedShareMember:
    metadata = member.known
    return DescribedShareMember(
        member_id=member.member_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.subscribed_topic_names),
        assignment=assignment_of(DescribedShareMember.Assignment, environment, member.current.assigned),
    )
