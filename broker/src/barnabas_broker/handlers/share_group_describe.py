"""ShareGroupDescribe (77), v1: the state, epochs and members of share groups (KIP-932).

A group of another type, or one that does not exist, has the error GROUP_ID_NOT_FOUND.
"""

from functools import partial
from typing import Final, TypeAlias

from barnabas_broker.coordinators.modern.group import ModernMember
from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.encoded_topics import NOT_ASKED
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import Rights
from barnabas_broker.wire.messages import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ApiError, ErrorCode

Described: TypeAlias = ShareGroupDescribeResponse.DescribedGroup
DescribedMember: TypeAlias = Described.Member
Assignment: TypeAlias = DescribedMember.Assignment
ASSIGNOR: Final = "simple"


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """Return the description of each group."""
    rights = rights_of(environment, context.client)
    answer = AnswerInTurns(ShareGroupDescribeResponse, context, environment.answers)
    groups = [
        await _group(environment, answer, rights, group_id, with_operations=request.include_authorized_operations)
        async for group_id in answer.over(request.group_ids)
    ]
    return ShareGroupDescribeResponse(groups=groups)


async def _group(
    environment: HandlerEnvironment, answer: AnswerInTurns, rights: Rights, group_id: str, *, with_operations: bool
) -> Described:
    operations = set(NOT_ASKED)
    try:
        if not environment.groups.share.are_on:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if not rights.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        group = environment.groups.share.group(group_id)
        if not all(rights.may(AclOperation.DESCRIBE, ResourceType.TOPIC, name) for name in group.all_topics()):
            message = "the group has a topic that the client may not describe"
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message)
    except ApiError as error:
        refusal = Described(
            error_code=error.code, error_message=error.message, group_id=group_id, authorized_operations=operations
        )
        return answer.encoded(("groups",), refusal)
    if with_operations:
        operations = rights.operations(ResourceType.GROUP, group_id)
    members = list(group.members.values())
    described = Described(
        group_id=group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=ASSIGNOR,
        members=await answer.elements(("groups", "members"), members, partial(_member, environment)),
        authorized_operations=operations,
    )
    return answer.encoded(("groups",), described)


def _member(environment: HandlerEnvironment, member: ModernMember) -> DescribedMember:
    metadata = member.known
    return DescribedMember(
        member_id=member.member_id,
        rack_id=metadata.rack_id,
        member_epoch=member.current.epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=list(metadata.subscribed_topic_names),
        assignment=_assignment(environment, member),
    )


def _assignment(environment: HandlerEnvironment, member: ModernMember) -> Assignment:
    """Return the assignment with the names of the topics, without those that were deleted."""
    names = ((topic_id, environment.image.topic_name(topic_id)) for topic_id in sorted(member.current.assigned))
    topics = [
        Assignment.TopicPartitions(
            topic_id=topic_id, topic_name=name, partitions=sorted(member.current.assigned[topic_id])
        )
        for topic_id, name in names
        if name is not None
    ]
    return Assignment(topic_partitions=topics)
