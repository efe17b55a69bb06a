"""A fetch of many partitions is read in slices, and only what changes is read again."""

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from barnabas_broker.app.loop_time import LoopTimers
from barnabas_broker.handlers import fetch
from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.fetch import SLICE_PARTITIONS
from barnabas_broker.replication.purgatory import Purgatory
from barnabas_broker.wire.fetch import LIMITS, PARTITION, SESSION
from barnabas_broker.wire.parts import FileSlice, Part
from barnabas_broker.wire.strings import write_count
from barnabas_core.errors import ApiError, ErrorCode

VERSION = 13
TOPIC = UUID(int=7)
PARTITIONS = 3 * SLICE_PARTITIONS + 10
BATCH_BYTES = 100


class OnePartition:
    """As much of a partition as a fetch looks at."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.waiters = purgatory.wait_list()
        self.high_watermark = self.last_stable_offset = self.log_start_offset = 0
        self.is_leader = True
        self.reads = 0

    def check_readable(self, epoch: int) -> None:
        self.reads += 1
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")

    def read(self, offset: int, length_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        length = (self.high_watermark - offset) * BATCH_BYTES
        return FileSlice(None, 0, length) if 0 < length <= length_max or (at_least_one_batch and length) else None  # type: ignore[arg-type]

    def append(self) -> None:
        self.high_watermark += 1
        self.waiters.mark()


class World:
    """A broker of many partitions, and one consumer."""

    def __init__(self) -> None:
        purgatory = Purgatory(LoopTimers(asyncio.get_running_loop()))
        self.partitions = [OnePartition(purgatory) for _ in range(PARTITIONS)]
        self.client = Client("PLAINTEXT", "127.0.0.1:5")
        self.trust: ConnectionTrust | None = None
        self.answer: list[Part] | None = None
        self.most_in_a_turn = 0
        self.handler_environment: Any = SimpleNamespace(
            replicas=SimpleNamespace(
                lookup=SimpleNamespace(find=lambda name, topic_id, number: self.partitions[number])
            ),
            config=SimpleNamespace(fetch_max_bytes=10_000_000),
            purgatory=purgatory,
            attempt=asyncio.ensure_future,
        )

    def respond(self, parts: list[Part]) -> None:
        self.answer = parts

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        return self.respond

    def close(self, reason: str | None = None) -> None:
        raise AssertionError(reason)

    @property
    def reads(self) -> int:
        return sum(partition.reads for partition in self.partitions)

    def fetch(self, *, min_bytes: int = 1, max_wait_ms: int = 60_000) -> None:
        body = struct.pack(">i", -1) + LIMITS.pack(max_wait_ms, min_bytes, 10_000_000, 0) + SESSION.pack(0, -1)
        body += write_count(1, flexible=True) + TOPIC.bytes + write_count(PARTITIONS, flexible=True)
        for number in range(PARTITIONS):
            body += PARTITION.pack(number, -1, 0, -1, -1, 1_000_000) + b"\0"
        body += b"\0" + write_count(0, flexible=True) + b"\1\0"
        fetch.handle(self.handler_environment, self, VERSION, 1, memoryview(body), 0, len(body))

    async def turns(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                before = self.reads
                await asyncio.sleep(0)
                self.most_in_a_turn = max(self.most_in_a_turn, self.reads - before)

    def has_read(self, partitions: int) -> bool:
        return self.reads == partitions

    def slices(self) -> int:
        assert self.answer is not None
        return sum(isinstance(part, FileSlice) for part in self.answer)


async def _in_slices() -> None:
    world = World()
    world.fetch(max_wait_ms=0)
    await world.turns(lambda: world.answer is not None)
    assert world.reads == PARTITIONS
    assert world.most_in_a_turn <= SLICE_PARTITIONS


def test_many_partitions_are_read_a_slice_a_turn() -> None:
    asyncio.run(_in_slices())


async def _one_append() -> None:
    world = World()
    world.fetch(min_bytes=3 * BATCH_BYTES)
    await world.turns(lambda: world.reads == PARTITIONS and bool(world.partitions[0].waiters))
    for number, partition in enumerate(world.partitions[:3]):
        assert world.answer is None
        partition.append()
        await world.turns(partial(world.has_read, PARTITIONS + number + 1))
    assert world.slices() == 3
    assert world.reads == PARTITIONS + 3
    assert not any(partition.waiters for partition in world.partitions)


def test_an_append_costs_a_waiting_fetch_one_look_however_many_partitions_it_has() -> None:
    asyncio.run(_one_append())


async def _between_turns() -> None:
    world = World()
    world.fetch()
    await asyncio.sleep(0)
    assert world.partitions[0].reads == 1
    world.partitions[0].append()
    await world.turns(lambda: world.answer is not None)
    assert world.slices() == 1


def test_records_that_come_between_two_slices_are_not_missed() -> None:
    asyncio.run(_between_turns())


async def _leader_moves() -> None:
    world = World()
    world.fetch(min_bytes=1_000_000)
    await world.turns(lambda: bool(world.partitions[-1].waiters))
    world.partitions[5].is_leader = False
    world.partitions[5].waiters.mark()
    await world.turns(lambda: world.answer is not None)


def test_a_partition_that_moves_to_another_leader_ends_the_wait() -> None:
    asyncio.run(_leader_moves())


async def _more_of_the_same() -> None:
    world = World()
    world.fetch(min_bytes=2 * BATCH_BYTES)
    await world.turns(lambda: bool(world.partitions[-1].waiters))
    world.partitions[9].append()
    await world.turns(lambda: world.partitions[9].reads == 2)
    assert world.answer is None
    world.partitions[9].append()
    await world.turns(lambda: world.answer is not None)
    assert world.slices() == 1


def test_a_partition_that_grows_twice_counts_once() -> None:
    asyncio.run(_more_of_the_same())
