"""AlterShareGroupOffsets (91), v0: sets the start offsets of a share group without members (KIP-932)."""

from collections.abc import Mapping
from typing import Final, TypeAlias
from uuid import UUID

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import awaited
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

AskedTopic: TypeAlias = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
AskedPartition: TypeAlias = AskedTopic.AlterShareGroupOffsetsRequestPartition
Topic: TypeAlias = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
Partition: TypeAlias = Topic.AlterShareGroupOffsetsResponsePartition
Answered: TypeAlias = tuple[ErrorCode, Mapping[TopicPartition, ErrorCode]]
_NO_ID: Final = UUID(int=0)


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Set the offsets; return an error code for the group, or one for each partition."""
    rights, shares = rights_of(environment, context.client), environment.groups.share
    if not shares.are_on:
        return _refusal(ErrorCode.UNSUPPORTED_VERSION)
    if not rights.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answer = AnswerInTurns(AlterShareGroupOffsetsResponse, context, environment.answers)
    refused, offsets = set[str](), dict[TopicPartition, int]()
    async for topic in answer.over(request.topics):
        if not rights.may(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            refused.add(topic.topic_name)
            continue
        async for each in answer.over(topic.partitions):
            offsets[TopicPartition(topic.topic_name, each.partition_index)] = each.start_offset
    answered: Answered = await awaited(
        lambda respond: shares.alter_offsets(request.group_id, offsets, lambda *found: respond(found))
    )
    error, errors = answered
    if error:
        return _refusal(error)
    topics = [
        await _topic(environment, answer, topic, errors, is_refused=topic.topic_name in refused)
        async for topic in answer.over(request.topics)
    ]
    return AlterShareGroupOffsetsResponse(error_message=None, responses=topics)


def _refusal(error: ErrorCode) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=None)


async def _topic(
    environment: HandlerEnvironment,
    answer: AnswerInTurns,
    topic: AskedTopic,
    errors: Mapping[TopicPartition, ErrorCode],
    *,
    is_refused: bool,
) -> Topic:
    name, document = topic.topic_name, environment.image.topics.get(topic.topic_name)

    def answered(each: AskedPartition) -> Partition:
        error = errors.get(TopicPartition(name, each.partition_index), ErrorCode.NONE)
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_refused else error
        return Partition(partition_index=each.partition_index, error_code=code, error_message=None)

    partitions = await answer.elements(("responses", "partitions"), topic.partitions, answered)
    topic_id = _NO_ID if document is None else document.topic_id
    return answer.encoded(("responses",), Topic(topic_name=name, topic_id=topic_id, partitions=partitions))
