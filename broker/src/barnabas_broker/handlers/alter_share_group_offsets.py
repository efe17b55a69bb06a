"""AlterShareGroupOffsets (91), v0: sets the start offsets of a share group without members (KIP-932)."""

from collections.abc import Awaitable, Iterator
from typing import Final, TypeAlias
from uuid import UUID

from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.client_rights import rights_of
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from barnabas_core.acls import AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.fair_turns import InSteps
from barnabas_core.topic_partition import TopicPartition

Topic: TypeAlias = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
Partition: TypeAlias = Topic.AlterShareGroupOffsetsResponsePartition
_NO_ID: Final = UUID(int=0)


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> InSteps[AlterShareGroupOffsetsResponse | Awaitable[AlterShareGroupOffsetsResponse]]:
    """Set the offsets; return an error code for the group, or one for each partition."""
    rights = rights_of(environment, context.client)
    if not environment.groups.share.are_on:
        return _refusal(ErrorCode.UNSUPPORTED_VERSION)
    if not rights.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return _refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused, offsets = dict[str, ErrorCode](), dict[TopicPartition, int]()
    for topic in request.topics:
        if not rights.may(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            refused[topic.topic_name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            for each in topic.partitions:
                offsets[TopicPartition(topic.topic_name, each.partition_index)] = each.start_offset
        yield 0

    def answered(error: ErrorCode, errors: dict[TopicPartition, ErrorCode]) -> AlterShareGroupOffsetsResponse:
        if error:
            return _refusal(error)
        return AlterShareGroupOffsetsResponse(
            error_message=None, responses=list(_topics(environment, request, refused, errors))
        )

    alter = environment.groups.share.alter_offsets
    return answer_of(
        lambda respond: alter(request.group_id, offsets, lambda error, errors: respond(answered(error, dict(errors))))
    )


def _refusal(error: ErrorCode) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error, error_message=None)


def _topics(
    environment: HandlerEnvironment,
    request: AlterShareGroupOffsetsRequest,
    refused: dict[str, ErrorCode],
    errors: dict[TopicPartition, ErrorCode],
) -> Iterator[Topic]:
    for topic in request.topics:
        name, document = topic.topic_name, environment.image.topics.get(topic.topic_name)
        partitions = [
            Partition(
                partition_index=each.partition_index,
                error_code=refused.get(name) or errors.get(TopicPartition(name, each.partition_index), ErrorCode.NONE),
                error_message=None,
            )
            for each in topic.partitions
        ]
        topic_id = _NO_ID if document is None else document.topic_id
        yield Topic(topic_name=name, topic_id=topic_id, partitions=partitions)
