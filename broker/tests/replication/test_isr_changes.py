"""Proposals of ISR changes are batched, and urgent ones do not wait for those that can."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from uuid import UUID

from barnabas_broker.metadata.controller.decisions.fencing import IsrChange
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.leader_replica import JOINS_TOGETHER_S, IsrChanges
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.deadline import PATIENCE_S
from harness.manual_timers import ManualTimers


class Leader:
    """A partition with two replicas in sync that proposes an ISR of `size`."""

    def __init__(self, number: int, size: int = 3, isr_size_min: int = 2) -> None:
        self.topic_partition = TopicPartition("t", number)
        self.isr_size = 2
        self.isr_size_min = isr_size_min
        self.confirmed = asyncio.Event()
        self._size = size

    def isr_change(self, *, confirms: bool) -> IsrChange | None:
        if confirms:
            self.confirmed.set()
            return None
        return IsrChange(self.topic_partition, UUID(int=1), 0, 0, dict.fromkeys(range(self._size), 1))

    def isr_change_refused(self, change: IsrChange) -> None:
        raise AssertionError(change)


class World:
    """Time passes and writes end when the test says so."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.writes: list[list[int]] = []
        self.written: asyncio.Queue[Exception | None] = asyncio.Queue()
        self.tasks: set[asyncio.Task[None]] = set()
        self.changes = IsrChanges(self.change_isr, self.timers, self.sleep, self.spawn)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)

    async def change_isr(self, changes: Sequence[IsrChange]) -> Mapping[TopicPartition, PartitionState | ApiError]:
        self.writes.append([change.topic_partition.partition for change in changes])
        error = await self.written.get()
        state = PartitionState((0, 1, 2), 0, 0, (0, 1, 2))
        outcome = state if error is None else ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error))
        return {change.topic_partition: outcome for change in changes}

    async def pass_time(self, seconds: float) -> None:
        self.timers.pass_time(seconds)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_isr_expansions_are_batched_and_a_shrink_is_written_at_once() -> None:
    world = World()
    world.changes.propose(Leader(0))
    world.changes.propose(Leader(1, size=1))
    assert [timer.delay_s for timer in world.timers.waiting] == [0, JOINS_TOGETHER_S]
    await world.pass_time(0)
    world.changes.propose(Leader(2))
    assert world.writes == [[1]]
    world.written.put_nowait(None)
    await world.pass_time(JOINS_TOGETHER_S)
    assert world.writes == [[1], [0, 2]]


async def test_an_isr_shrink_does_not_wait_for_a_write_of_expansions() -> None:
    world = World()
    world.changes.propose(Leader(0))
    await world.pass_time(JOINS_TOGETHER_S)
    world.changes.propose(Leader(1, size=1))
    await world.pass_time(0)
    assert world.writes == [[0], [1]]


async def test_an_isr_expansion_that_reaches_the_minimum_is_written_at_once() -> None:
    world = World()
    world.changes.propose(Leader(0, isr_size_min=3))
    await world.pass_time(0)
    assert world.writes == [[0]]


async def test_isr_changes_proposed_during_a_write_are_batched_into_the_next() -> None:
    world = World()
    for number in range(4):
        world.changes.propose(Leader(number, size=1))
        await world.pass_time(0)
    assert world.writes == [[0]]
    world.written.put_nowait(None)
    await world.pass_time(0)
    assert world.writes == [[0], [1, 2, 3]]


async def test_an_isr_change_with_an_unknown_outcome_does_not_delay_others() -> None:
    world = World()
    unknown = Leader(0, size=1)
    world.changes.propose(unknown)
    await world.pass_time(0)
    world.written.put_nowait(RuntimeError("the store is away"))
    async with asyncio.timeout(PATIENCE_S):
        await unknown.confirmed.wait()
    world.changes.propose(Leader(1, size=1))
    await world.pass_time(0)
    assert world.writes == [[0], [1]]
    assert world.changes.failed_total == 1
