"""OffsetDelete (47), v0: forget a group's offsets of topics that none of its members uses (KIP-496)."""

from collections.abc import Awaitable, Iterator

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

TopicResponse = OffsetDeleteResponse.OffsetDeleteResponseTopic
PartitionResponse = TopicResponse.OffsetDeleteResponsePartition


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    """An error for all, or one for each partition."""
    partitions = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    return answer_of(
        lambda respond: environment.groups.delete_offsets(
            request.group_id, partitions, lambda error, errors: respond(_response(request, error, errors))
        )
    )


def _response(request: OffsetDeleteRequest, error: ErrorCode, errors: list[ErrorCode]) -> OffsetDeleteResponse:
    each = iter(errors)
    topics = [] if error else [_topic(topic, each) for topic in request.topics]
    return OffsetDeleteResponse(error_code=error, throttle_time_ms=0, topics=topics)


def _topic(topic: OffsetDeleteRequest.OffsetDeleteRequestTopic, errors: Iterator[ErrorCode]) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(partition_index=partition.partition_index, error_code=next(errors))
            for partition in topic.partitions
        ],
    )
