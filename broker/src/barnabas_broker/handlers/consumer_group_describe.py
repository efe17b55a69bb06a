"""ConsumerGroupDescribe (69), v0 and v1: the state, epochs and members of consumer groups (KIP-848).

A group of another type, or one that does not exist, has the error GROUP_ID_NOT_FOUND. v1 adds the type of each member.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from barnabas_broker.coordinators.modern.group import ModernGroup, ModernMember
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.encoded_topics import NOT_ASKED
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

DescribedMember: TypeAlias = ConsumerGroupDescribeResponse.DescribedGroup.Member
ResponseT = TypeVar("ResponseT", ConsumerGroupDescribeResponse, ShareGroupDescribeResponse)
AssignmentT = TypeVar(
    "AssignmentT", DescribedMember.Assignment, ShareGroupDescribeResponse.DescribedGroup.Member.Assignment
)
CLASSIC, CONSUMER = 0, 1


class GroupKind(NamedTuple):
    """The ways in which consumer groups and share groups differ here."""

    is_on: bool
    """True if the cluster has groups of this kind."""
    find: Callable[[str], ModernGroup]
    """Return the group with an id. Raises ApiError."""
    assignor_of: Callable[[Any], str]
    member: Callable[[ModernMember], Any]
    """Describe a member."""


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """Return the description of each group."""
    groups, member = environment.groups, partial(_member, environment)
    kind = GroupKind(groups.has_consumer_groups, groups.describe_consumer_group, groups.assignor_of, member)
    return await described(environment, context, request, ConsumerGroupDescribeResponse, kind)


async def described(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: ConsumerGroupDescribeRequest | ShareGroupDescribeRequest,
    response: type[ResponseT],
    kind: GroupKind,
) -> ResponseT:
    """Return the response with the description of each group."""
    rights = rights_of(environment, context.client)
    answer = AnswerInTurns(response, context, environment.answers)
    groups = []
    async for group_id in answer.over(request.group_ids):
        facts: dict[str, Any] = {"group_id": group_id, "authorized_operations": set(NOT_ASKED)}
        try:
            group = await _found(answer, rights, kind, group_id)
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


async def _found(answer: AnswerInTurns, rights: Rights, kind: GroupKind, group_id: str) -> ModernGroup:
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


def _member(environment: HandlerEnvironment, member: ModernMember) -> DescribedMember:
    metadata, current = member.known, member.current
    assigned = {
        topic_id: {*current.assigned.get(topic_id, ()), *current.revoking.get(topic_id, ())}
        for topic_id in current.assigned.keys() | current.revoking.keys()
    }
    return DescribedMember(
        member_id=member.member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        member_epoch=current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.subscribed_topic_names),
        subscribed_topic_regex=metadata.subscribed_topic_regex,
        assignment=assignment_of(DescribedMember.Assignment, environment, assigned),
        target_assignment=assignment_of(DescribedMember.Assignment, environment, member.target),
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
