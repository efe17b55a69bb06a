"""Markers are sent to each partition's leader until they are written; one that is refused for ever is reported."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from barnabas_broker.coordinators.transactions.broker_queues import LinkEnvironment
from barnabas_broker.coordinators.transactions.marker_sender import MarkerSender
from barnabas_broker.coordinators.transactions.transaction import TransactionCounts
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.wire.codec import decode_request, encode_response
from barnabas_broker.wire.framing import parse_request_header
from barnabas_broker.wire.messages import WriteTxnMarkersResponse
from barnabas_broker.wire.transaction_markers import Marker
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_timers import ManualTimers

MARKER = Marker(7, 3, 1, is_commit=True)
A, B = TopicPartition("flights", 0), TopicPartition("flights", 1)
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult


def topic(*leaders: int) -> TopicDocument:
    return TopicDocument("flights", UUID(int=1), tuple(PartitionState((1,), each, 0, (1,)) for each in leaders))


class Network:
    """Brokers that respond with the codes that a test has set; those without an entry are dead."""

    def __init__(self) -> None:
        self.codes: dict[int, ErrorCode] = {}
        self.asked: list[tuple[int, int]] = []
        """The broker and the count of markers of each request."""

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Any:
        return SimpleNamespace(send=lambda *sent: self._send(broker_id, on_closed, *sent), close=lambda: None)

    def _send(
        self, broker_id: int, on_closed: Callable[[str], None], frame: bytes, answer: Callable[[memoryview], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        if broker_id not in self.codes:
            loop.call_soon(on_closed, "refused")
            return
        view = memoryview(frame)
        header = parse_request_header(view, 4, len(view))
        request = decode_request(header.api_key, header.api_version, view[header.body_start :])
        self.asked.append((broker_id, len(request.markers)))
        results = [self._result(each, self.codes[broker_id]) for each in request.markers]
        response = encode_response(WriteTxnMarkersResponse(markers=results), header.api_version, 0)
        loop.call_soon(answer, memoryview(response)[4:])

    def _result(self, marker: Any, code: ErrorCode) -> Result:
        of_topic = Result.WritableTxnMarkerTopicResult
        of_partition = of_topic.WritableTxnMarkerPartitionResult
        topics = [
            of_topic(
                name=each.name,
                partitions=[of_partition(partition_index=n, error_code=code) for n in each.partition_indexes],
            )
            for each in marker.topics
        ]
        return Result(producer_id=marker.producer_id, topics=topics)


class World:
    """A sender with two partitions, led by brokers 1 and 2."""

    def __init__(self) -> None:
        self.network, self.timers, self.done = Network(), ManualTimers(), 0
        self.topics = {"flights": topic(1, 2)}
        self.is_wanted, self.counts = True, TransactionCounts()
        self._tasks: set[asyncio.Task[None]] = set()
        environment = LinkEnvironment(self.network, self._spawn, asyncio.timeout, "test")
        image: Any = SimpleNamespace(topics=self.topics)
        self.sender = MarkerSender(environment, image, self.timers, self.counts)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)

    def _count(self) -> None:
        self.done += 1

    async def send(self, marker: Marker = MARKER) -> int:
        self.sender.send(marker, 2, [A, B], lambda: self.is_wanted, self._count)
        return await self.settled()

    async def settled(self) -> int:
        """Return how many markers are done, after all tasks ended; pauses may be left."""
        while self._tasks:
            tasks, self._tasks = self._tasks, set()
            await asyncio.gather(*tasks)
        return self.done

    async def after_the_pause(self) -> int:
        self.timers.pass_time(0.2)
        return await self.settled()


async def all_take_them() -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NONE, 2: ErrorCode.NONE}
    assert await world.send() == 1


async def a_leader_moves() -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NONE, 2: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert await world.send() == 0
    world.topics["flights"] = topic(1, 1)
    assert await world.after_the_pause() == 1
    assert world.network.asked == [(1, 1), (2, 1), (1, 1)]


async def a_broker_is_dead() -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NONE}
    assert await world.send() == 0
    world.network.codes[2] = ErrorCode.NONE
    assert await world.after_the_pause() == 1


async def nobody_leads() -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NONE}
    world.topics["flights"] = topic(1, -1)
    assert await world.send() == 0
    world.topics["flights"] = topic(1, 1)
    assert await world.after_the_pause() == 1


async def the_topic_is_deleted() -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NONE}
    assert await world.send() == 0
    del world.topics["flights"]
    assert await world.after_the_pause() == 1


async def another_one_coordinates() -> None:
    world = World()
    assert await world.send() == 0
    world.is_wanted = False
    assert await world.after_the_pause() == 0
    assert not world.timers.waiting


CASES = [
    all_take_them,
    a_leader_moves,
    a_broker_is_dead,
    nobody_leads,
    the_topic_is_deleted,
    another_one_coordinates,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_a_marker_is_sent_until_it_is_written_or_unnecessary(case: Callable[[], Any]) -> None:
    await case()


async def test_a_marker_that_is_refused_for_ever_is_not_retried_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NONE, 2: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await world.send() == 1
    assert "flights-1 refuses the marker" in caplog.text
    assert world.counts.refused_markers == {ErrorCode.INVALID_PRODUCER_EPOCH: 1}


async def test_markers_of_several_transactions_share_a_request() -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NONE, 2: ErrorCode.NONE}
    for producer_id in range(3):
        world.sender.send(MARKER._replace(producer_id=producer_id), 2, [A], lambda: True, lambda: None)
    await world.settled()
    assert world.network.asked == [(1, 3)]
