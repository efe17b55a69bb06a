"""The end offsets of partitions that other brokers lead, requested with ListOffsets, as a consumer does.

The lag of a consumer group is computed from these end offsets, because a group may read partitions of any broker.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_broker.replication.links import Links, RequestLink
from barnabas_broker.wire.codec import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import ListOffsetsRequest
from barnabas_core.clock import Timeout
from barnabas_core.errors import ErrorCode
from barnabas_core.fair_turns import in_turns
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

VERSION: Final = 7
CONSUMER: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
ANSWER_S: Final = 2.0
"""The time limit in seconds for all requests to one broker; partitions without an answer by then are left out."""
PARTITIONS_A_REQUEST: Final = 500
"""The maximum number of partitions in a request, so that no event loop is blocked for more than a few ms."""

Topic = ListOffsetsRequest.ListOffsetsTopic


class _Kind(NamedTuple):
    """The offsets that are asked for."""

    timestamp: int
    isolation_level: int


class EndOffsets:
    """The sender of ListOffsets requests to the leaders of partitions; `broker_id` is the id of this broker."""

    def __init__(self, broker_id: int, links: Links, image: MetadataImage, timeout: Timeout) -> None:
        self._broker_id = broker_id
        self._links = links
        self._image = image
        self._timeout = timeout

    async def ask(
        self, partitions: Iterable[TopicPartition], end: int = LATEST, *, is_read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the high watermarks of partitions, or their log start offsets if `end` is EARLIEST.

        With `is_read_committed`, the last stable offsets take the place of the high watermarks.

        The result lacks partitions without a leader, partitions that this broker leads, and partitions whose leader
        does not answer or returns an error.
        """
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        async for topic_partition in in_turns(partitions, PARTITIONS_A_REQUEST):
            leader = self._leader(topic_partition)
            if leader not in (NO_LEADER, self._broker_id):
                by_leader[leader].append(topic_partition)
        kind = _Kind(end, int(is_read_committed))
        answers = await asyncio.gather(*(self._ask_leader(leader, asked, kind) for leader, asked in by_leader.items()))
        return {topic_partition: offset for answer in answers for topic_partition, offset in answer.items()}

    def _leader(self, topic_partition: TopicPartition) -> int:
        document = self._image.topics.get(topic_partition.topic)
        if document is None or topic_partition.partition >= len(document.partitions):
            return NO_LEADER
        return document.partitions[topic_partition.partition].leader

    async def _ask_leader(
        self, leader_id: int, partitions: Sequence[TopicPartition], kind: _Kind
    ) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        client_id = f"broker-{self._broker_id}-lag"
        request_link = RequestLink(self._links, leader_id)
        try:
            async with self._timeout(ANSWER_S):
                for begin in range(0, len(partitions), PARTITIONS_A_REQUEST):
                    request = _request(partitions[begin : begin + PARTITIONS_A_REQUEST], kind)
                    found |= _told(await request_link.ask(encode_request(request, VERSION, 0, client_id)))
        except (TimeoutError, ConnectionError, MalformedRequest) as error:
            log.info("broker %d did not return the end offsets of its partitions: %r", leader_id, error)
        finally:
            request_link.close()
        return found


def _told(answer: memoryview) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in decode_response("ListOffsetsResponse", VERSION, answer).topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


def _request(partitions: Sequence[TopicPartition], kind: _Kind) -> ListOffsetsRequest:
    by_topic: dict[str, list[Topic.ListOffsetsPartition]] = defaultdict(list)
    for name, number in partitions:
        wanted = Topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=kind.timestamp)
        by_topic[name].append(wanted)
    topics = [Topic(name=name, partitions=asked) for name, asked in by_topic.items()]
    return ListOffsetsRequest(replica_id=CONSUMER, isolation_level=kind.isolation_level, topics=topics)
