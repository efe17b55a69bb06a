"""OffsetDelete (47), v0: deletes a group's offsets of topics that none of its members consumes (KIP-496)."""

from collections.abc import Awaitable, Iterator
from functools import partial
from itertools import compress

from barnabas_broker.handlers.answer_in_turns import stepwise
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.deferred_answer import answer_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.messages import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import InSteps, flat_in_steps, in_steps
from barnabas_core.topic_partition import TopicPartition

TopicResponse = OffsetDeleteResponse.OffsetDeleteResponseTopic
PartitionResponse = TopicResponse.OffsetDeleteResponsePartition


@stepwise
def handle(
    environment: HandlerEnvironment, context: RequestContext, request: OffsetDeleteRequest
) -> InSteps[OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]]:
    """Delete committed offsets; return one error for the group, or an error code for each partition."""
    partitions = yield from flat_in_steps(request.topics, _partitions)
    there = yield from in_steps(partitions, partial(_is_there, environment))
    return answer_of(
        lambda respond: environment.groups.delete_offsets(
            request.group_id,
            list(compress(partitions, there)),
            lambda error, errors: respond(_response(request, there, error, errors)),
        )
    )


def _partitions(topic: OffsetDeleteRequest.OffsetDeleteRequestTopic) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, each.partition_index) for each in topic.partitions)


def _is_there(environment: HandlerEnvironment, partition: TopicPartition) -> bool:
    document = environment.image.topics.get(partition.topic)
    return document is not None and 0 <= partition.partition < len(document.partitions)


def _response(
    request: OffsetDeleteRequest, there: list[bool], error: ErrorCode, errors: list[ErrorCode]
) -> OffsetDeleteResponse:
    of_those = iter(errors)
    each = (next(of_those) if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for is_there in there)
    topics = [] if error else [_topic(topic, each) for topic in request.topics]
    return OffsetDeleteResponse(error_code=error, topics=topics)


def _topic(topic: OffsetDeleteRequest.OffsetDeleteRequestTopic, errors: Iterator[ErrorCode]) -> TopicResponse:
    return TopicResponse(
        name=topic.name,
        partitions=[
            PartitionResponse(partition_index=partition.partition_index, error_code=next(errors))
            for partition in topic.partitions
        ],
    )
