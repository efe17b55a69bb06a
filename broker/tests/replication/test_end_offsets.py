"""End offsets of partitions that other brokers lead, requested over a simulated network."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.replication.other_brokers import EARLIEST, LIST_OFFSETS_VERSION, PARTITIONS_A_REQUEST, EndOffsets
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import parse_request_header
from barnabas_broker.wire.messages import ListOffsetsRequest, ListOffsetsResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

HERE = 1
LIST_OFFSETS = 2
Topic = ListOffsetsResponse.ListOffsetsTopicResponse
Answer = Callable[[memoryview], None]


class FakeLinks:
    """Links to brokers whose partitions start at 0 and end at the broker's id plus 100 times the partition's number."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        """The broker of each request, and the number of its partitions."""
        self.dead: set[int] = set()
        self.wrong: set[int] = set()
        self.open_count = 0

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> "FakeLink":
        self.open_count += 1
        return FakeLink(self, broker_id, on_closed)


class FakeLink:
    def __init__(self, links: FakeLinks, broker_id: int, on_closed: Callable[[str], None]) -> None:
        self._links, self._broker_id, self._on_closed = links, broker_id, on_closed

    def send(self, frame: bytes | bytearray, on_response: Answer) -> None:
        loop = asyncio.get_running_loop()
        if self._broker_id in self._links.dead:
            loop.call_soon(self._on_closed, "cannot connect: refused")
            return
        view = memoryview(frame)
        header = parse_request_header(view, 4, len(view))
        assert (header.api_key, header.api_version, header.client_id) == (
            LIST_OFFSETS,
            LIST_OFFSETS_VERSION,
            "broker-1-lag",
        )
        request = decode_request(LIST_OFFSETS, LIST_OFFSETS_VERSION, view[header.body_start :])
        self._links.requests.append((self._broker_id, sum(len(topic.partitions) for topic in request.topics)))
        answer = b"\0\0\0\0?" if self._broker_id in self._links.wrong else self._answer(request)
        loop.call_soon(on_response, memoryview(answer))

    def _answer(self, request: ListOffsetsRequest) -> bytes:
        topics = [
            Topic(
                name=topic.name,
                partitions=[
                    Topic.ListOffsetsPartitionResponse(
                        partition_index=each.partition_index,
                        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER if topic.name == "moved" else ErrorCode.NONE,
                        offset=0 if each.timestamp == EARLIEST else self._broker_id + 100 * each.partition_index,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return bytes(encode_response(ListOffsetsResponse(throttle_time_ms=0, topics=topics), LIST_OFFSETS_VERSION, 0))[
            4:
        ]

    def close(self) -> None:
        self._links.open_count -= 1


def image_of(**leaders: list[int]) -> MetadataImage:
    """Topics by name, with the leader of each of their partitions."""
    image = MetadataImage()
    for number, (name, each) in enumerate(leaders.items()):
        partitions = tuple(PartitionState((1, 2, 3), leader, 0, (1, 2, 3)) for leader in each)
        image.topics[name] = TopicDocument(name, UUID(int=number + 1), partitions)
    return image


@pytest.fixture
def links() -> FakeLinks:
    return FakeLinks()


async def test_each_leader_is_asked_for_its_own_partitions(links: FakeLinks) -> None:
    ends = EndOffsets(HERE, links, image_of(a=[2, 3, 2], b=[3]), asyncio.timeout)
    asked = [TopicPartition("a", number) for number in range(3)] + [TopicPartition("b", 0)]
    found = await ends.ask(asked)
    assert found == dict(zip(asked, (2, 103, 202, 3), strict=True))
    assert await ends.ask(asked, EARLIEST) == dict.fromkeys(asked, 0)
    assert sorted(links.requests) == [(2, 2), (2, 2), (3, 2), (3, 2)]
    assert links.open_count == 0


async def test_partitions_that_no_other_broker_leads_are_not_asked_for(links: FakeLinks) -> None:
    ends = EndOffsets(HERE, links, image_of(a=[HERE, NO_LEADER]), asyncio.timeout)
    asked = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("gone", 0)]
    assert await ends.ask(asked) == {}
    assert links.requests == []


async def test_partitions_whose_leader_gives_no_answer_are_left_out(links: FakeLinks) -> None:
    links.dead.add(2)
    links.wrong.add(3)
    ends = EndOffsets(HERE, links, image_of(a=[2, 3, 4], moved=[4]), asyncio.timeout)
    asked = [TopicPartition("a", number) for number in range(3)] + [TopicPartition("moved", 0)]
    assert await ends.ask(asked) == {TopicPartition("a", 2): 204}
    assert links.open_count == 0


async def test_many_partitions_are_asked_for_in_parts(links: FakeLinks) -> None:
    count = PARTITIONS_A_REQUEST + 1
    ends = EndOffsets(HERE, links, image_of(a=[2] * count), asyncio.timeout)
    found = await ends.ask([TopicPartition("a", number) for number in range(count)])
    assert len(found) == count
    assert links.requests == [(2, PARTITIONS_A_REQUEST), (2, 1)]
