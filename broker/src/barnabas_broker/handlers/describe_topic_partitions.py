"""DescribeTopicPartitions (75), v0: partitions with eligible leader replicas, page by page (KIP-966)."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.encoded_topics import TOPIC_OPERATIONS
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.metadata import NO_ID, why_missing
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.wire.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_name import is_internal

TopicResponse = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
PartitionResponse = TopicResponse.DescribeTopicPartitionsResponsePartition
NO_OPERATIONS: Final = -(2**31)
OPERATIONS: Final = sum(1 << operation for operation in TOPIC_OPERATIONS)


class Place(NamedTuple):
    """One partition in the order of the pages; the index of a topic that is not there is 0."""

    name: str
    partition: int


def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """At most response_partition_limit partitions (and max.request.partition.size.limit), and where to go on."""
    cursor = request.cursor
    first = Place("", 0) if cursor is None else Place(cursor.topic_name, cursor.partition_index)
    asked = sorted({topic.name for topic in request.topics} or environment.image.topics)
    limit = min(request.response_partition_limit, environment.config.max_request_partition_size_limit)
    places = list(islice(_places(environment, asked, first), max(1, limit) + 1))
    page, rest = places[: max(1, limit)], places[max(1, limit) :]
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0,
        topics=[
            _topic(environment, name, [each.partition for each in page if each.name == name]) for name in _names(page)
        ],
        next_cursor=DescribeTopicPartitionsResponse.Cursor(topic_name=rest[0].name, partition_index=rest[0].partition)
        if rest
        else None,
    )


def _places(environment: HandlerEnvironment, names: Iterable[str], first: Place) -> Iterator[Place]:
    for name in names:
        document = environment.image.topics.get(name)
        count = 1 if document is None else len(document.partitions)
        yield from (place for place in (Place(name, index) for index in range(count)) if place >= first)


def _names(page: list[Place]) -> list[str]:
    return list(dict.fromkeys(place.name for place in page))


def _topic(environment: HandlerEnvironment, name: str, indexes: list[int]) -> TopicResponse:
    document = environment.image.topics.get(name)
    if document is None:
        return TopicResponse(
            error_code=why_missing(name),
            name=name,
            topic_id=NO_ID,
            is_internal=False,
            partitions=[],
            topic_authorized_operations=NO_OPERATIONS,
        )
    return TopicResponse(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=document.topic_id,
        is_internal=is_internal(name),
        partitions=[_partition(environment, document, index) for index in indexes],
        topic_authorized_operations=OPERATIONS,
    )


def _partition(environment: HandlerEnvironment, document: TopicDocument, index: int) -> PartitionResponse:
    state: PartitionState = document.partitions[index]
    live = environment.image.live
    return PartitionResponse(
        error_code=ErrorCode.NONE if state.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if state.leader in live else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=[] if state.last_known_leader == NO_LEADER else [state.last_known_leader],
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )
