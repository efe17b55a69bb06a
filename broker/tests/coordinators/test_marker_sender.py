"""Markers are sent to each partition's leader until they are written; one that is refused for ever is reported."""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from placed_topics import PlacedTopics

from barnabas_broker.coordinators.runtime.peer_requests import LinkEnvironment
from barnabas_broker.coordinators.transactions.decisions import TransactionCounts
from barnabas_broker.coordinators.transactions.marker_sender import MarkerSender
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import parse_request_header
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.messages import WriteTxnMarkersResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_timers import ManualTimers

MARKER = Marker(7, 3, 1, is_commit=True)
A, B = TopicPartition("flights", 0), TopicPartition("flights", 1)
Result = WriteTxnMarkersResponse.WritableTxnMarkerResult


class Network:
    """Brokers that respond with the codes that a test has set; those without an entry are dead."""

    def __init__(self) -> None:
        self.codes: dict[int, ErrorCode] = {}
        self.hangs: set[int] = set()
        self.partition_codes: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[tuple[int, int]] = []
        """The broker, and the count of partitions, of each request."""
        self.written: Counter[tuple[int, TopicPartition]] = Counter()

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Any:
        return SimpleNamespace(send=lambda *sent: self._send(broker_id, on_closed, *sent), close=lambda: None)

    def _send(
        self, broker_id: int, on_closed: Callable[[str], None], frame: bytes, answer: Callable[[memoryview], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        if broker_id not in self.codes and broker_id not in self.hangs:
            loop.call_soon(on_closed, "refused")
            return
        view = memoryview(frame)
        header = parse_request_header(view, 4, len(view))
        request = decode_request(header.api_key, header.api_version, view[header.body_start :])
        count = sum(len(topic.partition_indexes) for marker in request.markers for topic in marker.topics)
        self.asked.append((broker_id, count))
        if broker_id in self.hangs:
            return
        results = [self._result(each, self.codes[broker_id]) for each in request.markers]
        response = encode_response(WriteTxnMarkersResponse(markers=results), header.api_version, 0)
        loop.call_soon(answer, memoryview(response)[4:])

    def _result(self, marker: Any, code: ErrorCode) -> Result:
        of_topic = Result.WritableTxnMarkerTopicResult
        topics = [
            of_topic(
                name=each.name,
                partitions=[
                    self._partition(marker.producer_id, TopicPartition(each.name, n), code)
                    for n in each.partition_indexes
                ],
            )
            for each in marker.topics
        ]
        return Result(producer_id=marker.producer_id, topics=topics)

    def _partition(self, producer_id: int, partition: TopicPartition, code: ErrorCode) -> Any:
        code = self.partition_codes.get(partition, code)
        self.written[producer_id, partition] += code is ErrorCode.NONE
        kind = Result.WritableTxnMarkerTopicResult.WritableTxnMarkerPartitionResult
        return kind(partition_index=partition.partition, error_code=code)


class World:
    """A sender with two partitions, led by brokers 1 and 2."""

    def __init__(self) -> None:
        self.network, self.timers, self.done = Network(), ManualTimers(), 0
        self.topics = PlacedTopics()
        self.topics.lead("flights", 1, 2)
        self.is_wanted, self.counts = True, TransactionCounts()
        self.caught_up = asyncio.Event()
        self.caught_up.set()
        self._tasks: list[asyncio.Future[None]] = []
        self.start()

    def start(self) -> None:
        """Start a sender with what the image has now."""
        environment = LinkEnvironment(self.network, self._spawn, asyncio.timeout, self.timers.clock, "test")
        self.sender = MarkerSender(environment, self.topics.image, self.timers, self.counts, self._catch_up)

    async def _catch_up(self) -> None:
        await self.caught_up.wait()

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _count(self) -> None:
        self.done += 1

    def begin(self, *partitions: TopicPartition, producers: int = 1) -> None:
        for number in range(producers):
            marker = MARKER._replace(producer_id=MARKER.producer_id + number)
            self.sender.send(marker, 2, partitions or [A, B], lambda: self.is_wanted, self._count)

    async def send(self, *partitions: TopicPartition, producers: int = 1) -> int:
        self.begin(*partitions, producers=producers)
        return await self.settled()

    async def settled(self) -> int:
        """Return how many transactions are done once no task can go on; pauses and hanging brokers may be left."""
        for _ in range(10_000):
            before = (self.done, len(self.network.asked), len(self._tasks))
            for _ in range(20):
                await asyncio.sleep(0)
            if before == (self.done, len(self.network.asked), len(self._tasks)):
                return self.done
        raise AssertionError("it never settles")

    async def after_the_pause(self, seconds: float = 0.2) -> int:
        self.timers.pass_time(seconds)
        return await self.settled()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def all_take_them(world: World) -> None:
    world.network.codes = {1: ErrorCode.NONE, 2: ErrorCode.NONE}
    assert await world.send() == 1


async def a_leader_moves(world: World) -> None:
    world.network.codes = {1: ErrorCode.NONE, 2: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert await world.send() == 0
    world.topics.lead("flights", 1, 1)
    assert await world.settled() == 1, "it is not sent before the end of the pause"
    assert world.network.asked == [(1, 1), (2, 1), (1, 1)]


async def a_broker_is_dead(world: World) -> None:
    world.network.codes = {1: ErrorCode.NONE}
    assert await world.send() == 0
    world.network.codes[2] = ErrorCode.NONE
    assert await world.after_the_pause() == 1


async def nobody_leads(world: World) -> None:
    world.network.codes = {1: ErrorCode.NONE}
    world.topics.lead("flights", 1, -1)
    assert await world.send() == 0
    assert not world.timers.waiting, "a partition without a leader waits for the image"
    world.topics.lead("flights", 1, 1)
    assert await world.settled() == 1


async def the_topic_is_deleted(world: World) -> None:
    world.network.codes = {1: ErrorCode.NONE}
    assert await world.send() == 0
    world.topics.delete("flights", 2)
    assert await world.settled() == 1


async def another_one_coordinates(world: World) -> None:
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
async def test_a_marker_is_sent_until_it_is_written_or_unnecessary(case: Callable[[World], Any]) -> None:
    world = World()
    await case(world)
    await world.end()


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
    world.network.codes = {1: ErrorCode.NONE}
    assert await world.send(A, producers=3) == 3
    assert world.network.asked == [(1, 3)]


def absent(topics: PlacedTopics) -> None:
    topics.lead("flights", 1)


def lost(topics: PlacedTopics) -> None:
    topics.lose("flights")


def deleted_before_the_lost_one(topics: PlacedTopics) -> None:
    topics.delete("flights", 2)
    topics.report_stray("flights", topic_id=2)


@pytest.mark.parametrize("case", [absent, lost, deleted_before_the_lost_one], ids=lambda case: case.__name__)
async def test_a_marker_waits_for_a_partition_that_the_metadata_lacks_until_the_partition_is_back(
    case: Callable[[PlacedTopics], None], caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    world.topics = PlacedTopics()
    case(world.topics)
    world.start()
    world.network.codes = {1: ErrorCode.NONE}
    assert await world.send(B) == 0
    assert await world.after_the_pause(60) == 0
    assert "before the metadata has the partition flights-1" in caplog.text
    world.topics.lead("flights", 1, 1, topic_id=2 if case is deleted_before_the_lost_one else 1)
    assert await world.settled() == 1
    assert world.network.written == {(7, B): 1}


async def test_a_marker_is_written_to_a_topic_that_an_image_behind_the_store_does_not_have_yet() -> None:
    """The transaction has written to the second topic of this name; the image has only the deletion of the first."""
    world = World()
    world.topics.delete("flights", 2)
    world.network.codes = {1: ErrorCode.NONE, 2: ErrorCode.NONE}
    world.caught_up.clear()
    assert await world.send() == 0
    world.topics.lead("flights", 2, 1, topic_id=2)
    world.caught_up.set()
    assert await world.settled() == 1
    assert world.network.written == {(7, A): 1, (7, B): 1}


async def test_a_topic_that_is_created_again_with_fewer_partitions_has_no_marker_for_the_missing_ones() -> None:
    world = World()
    world.network.codes = {2: ErrorCode.NONE}
    assert await world.send() == 0
    world.topics.delete("flights", 2)
    world.topics.lead("flights", 2, topic_id=2)
    assert await world.settled() == 1
    assert world.network.written == {(7, B): 1, (7, A): 1}


async def test_markers_that_wait_for_a_broker_that_hangs_go_to_the_next_leader_at_once() -> None:
    world = World()
    world.network.hangs, world.network.codes = {1}, {2: ErrorCode.NONE}
    assert await world.send(A, producers=2_000) == 0
    world.topics.lead("flights", 2, 2)
    assert await world.settled() == 2_000
    assert sum(1 for broker, _ in world.network.asked if broker == 1) == 1, "one request hangs"
    assert not world.timers.waiting


async def test_a_broker_that_hangs_keeps_the_markers_of_the_partitions_that_it_still_leads() -> None:
    world = World()
    world.topics.lead("flights", 1, 1)
    world.network.hangs, world.network.codes = {1}, {2: ErrorCode.NONE}
    await world.send(A, B)
    world.topics.lead("flights", 2, 1)
    await world.settled()
    assert world.network.asked == [(1, 2), (2, 1)]
    assert world.done == 0
    await world.end()


async def test_a_request_is_bounded_by_its_partitions_and_each_partition_counts_once() -> None:
    world = World()
    world.topics.lead("flights", *[1] * 2_600)
    world.network.codes = {1: ErrorCode.NONE}
    partitions = [TopicPartition("flights", number) for number in range(2_600)]
    assert await world.send(*partitions, producers=2) == 2
    assert max(count for _, count in world.network.asked) <= 2_000
    assert len(world.network.asked) == 3
    assert set(world.network.written.values()) == {1}


async def test_the_markers_of_other_partitions_count_if_one_partition_fails() -> None:
    world = World()
    world.topics.lead("flights", 1, 1)
    world.network.codes, world.network.partition_codes = {1: ErrorCode.NONE}, {B: ErrorCode.REQUEST_TIMED_OUT}
    assert await world.send() == 0
    world.network.partition_codes = {}
    assert await world.after_the_pause() == 1
    assert world.network.written == {(7, A): 1, (7, B): 1}


async def test_transactions_that_cannot_end_wait_together_and_a_healthy_one_needs_one_request() -> None:
    """However many transactions wait for a partition, the requests of a minute are as many as those of one."""
    requests = []
    for producers in (1, 500):
        world = World()
        world.topics.lead("flights", 1, 1)
        world.network.codes = {1: ErrorCode.NONE}
        world.network.partition_codes = {B: ErrorCode.NOT_ENOUGH_REPLICAS}
        await world.send(B, producers=producers)
        begun = len(world.network.asked)
        for _ in range(600):
            await world.after_the_pause(0.1)
        requests.append(world.network.asked[begun:])
        asked = len(world.network.asked)
        assert await world.send(A) == 1
        assert world.network.asked[asked:] == [(1, 1)]
        world.network.partition_codes = {}
        assert await world.after_the_pause(2) == producers + 1
    assert len(requests[0]) == len(requests[1]) <= 35
    assert max(count for _, count in requests[1]) == 1


async def test_another_state_of_the_partition_ends_the_pause() -> None:
    world = World()
    world.network.codes = {1: ErrorCode.NOT_ENOUGH_REPLICAS}
    await world.send(A, producers=100)
    for _ in range(10):
        await world.after_the_pause(2)
    world.network.codes = {1: ErrorCode.NONE}
    world.topics.lead("flights", 1, 2)
    assert await world.settled() == 100


async def test_markers_that_a_former_coordinator_sent_leave_a_parked_partition() -> None:
    world = World()
    world.topics.lead("flights", -1, 2)
    await world.send(A, producers=3)
    world.is_wanted = False
    for _ in range(3):
        world.sender.send(MARKER, 2, [A], lambda: True, lambda: None)
    lane = world.sender.queues.lane(A)
    assert lane is not None
    assert len(lane.items) == 3
