"""A simulated world for the share coordinator: time moved by hand, and a log in memory that can be pruned."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from coordinator_world import MemoryLog

from barnabas_broker.coordinators.runtime.shard import RuntimeEnvironment
from barnabas_broker.coordinators.runtime.turns import Turns
from barnabas_broker.coordinators.share_state.persister import ShareCoordinator
from barnabas_broker.coordinators.share_state.shard import ShareStateCounts, ShareStateEnvironment, ShareStateShard
from barnabas_broker.coordinators.share_state.share_state import (
    InitializeEntry,
    ReadEntry,
    ShareOutcome,
    SharePartitionKey,
    ShareState,
    StateBatch,
    WriteEntry,
)
from barnabas_broker.wire.key_values import KeyValueList, KeyValueSlice
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import SHARE_GROUP_STATE, TopicIdPartition
from harness.manual_timers import ManualTimers

TASKS = TopicIdPartition(UUID(int=0x77), 0)
GROUP = "workers"
WRITE_TIMEOUT_MS = 5_000


class PrunedMemoryLog(MemoryLog):
    """A log whose records are read in their order, from a start offset on."""

    def __init__(self, timers: ManualTimers) -> None:
        super().__init__(1, timers)
        self.start_offset = 0

    @property
    def records(self) -> list[Any]:
        """All records from the start offset on."""
        return [record for batch in self._written[0] for record in batch][self.start_offset :]

    def end_offset(self, partition: int) -> int:
        return sum(map(len, self._written[partition]))

    def delete_before(self, partition: int, offset: int) -> None:
        assert offset <= sum(map(len, self._written[partition][: self._committed[partition]]))
        self.start_offset = max(self.start_offset, offset)

    def read(self, partition: int, on_ready: Callable[[], object]) -> Iterator[KeyValueSlice | None]:
        self._timers.call_soon(on_ready)
        yield None
        found = KeyValueList()
        found.records = self.records
        yield found


class ShareStateWorld:
    """One broker's share coordinator with its environment."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.timers = ManualTimers()
        self.clock = self.timers.clock
        self.log = PrunedMemoryLog(self.timers)
        self.unknown: set[TopicIdPartition] = set()
        """The partitions that the image of the coordinator lacks."""
        self.deleted: set[UUID] = set()
        """The ids of the topics with a tombstone."""
        self.config = parse_broker_config(properties or {})
        self.leader_epoch = 0
        self.counts = ShareStateCounts()
        self.coordinator = self._new_coordinator()
        self.elect()

    def _new_coordinator(self) -> ShareCoordinator:
        environment = ShareStateEnvironment(
            self.config, self.clock, self.log, lambda each: each not in self.unknown, lambda: self.deleted, self.counts
        )
        turns = Turns(self.timers, self.clock)
        of_runtime = RuntimeEnvironment(
            SHARE_GROUP_STATE, self.log, self.clock, self.timers, turns, lambda: True, WRITE_TIMEOUT_MS
        )
        coordinator = ShareCoordinator(environment, of_runtime, 1)
        coordinator.start()
        return coordinator

    def elect(self) -> None:
        self.coordinator.runtime.elect(0, self.leader_epoch)
        self.timers.pass_time()

    def fail_over(self, survivors: int = 0) -> None:
        """Make another broker the leader; so many batches beyond the high watermark were replicated."""
        self.coordinator.runtime.stop()
        self.log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, survivors)
        self.leader_epoch += 1
        self.coordinator = self._new_coordinator()
        self.elect()

    @property
    def shard(self) -> ShareStateShard:
        """The loaded state machine of the only partition."""
        return self.coordinator.runtime.at(0)

    @property
    def states(self) -> dict[SharePartitionKey, ShareState]:
        """The committed states."""
        return dict(self.shard.states.values())

    def state(self, partition: TopicIdPartition = TASKS) -> ShareState:
        return self.states[SharePartitionKey(GROUP, *partition)]

    def ask(self, start: Callable[[Callable[[ShareOutcome], object]], object]) -> ShareOutcome:
        answers: list[ShareOutcome] = []
        start(answers.append)
        self.timers.pass_time()
        (answer,) = answers
        return answer

    def initialize(
        self, state_epoch: int = 1, start_offset: int = 0, partition: TopicIdPartition = TASKS
    ) -> ShareOutcome:
        entry = InitializeEntry(partition, state_epoch, start_offset)
        return self.ask(lambda answer: self.coordinator.initialize(GROUP, entry, answer))

    def write(self, entry: WriteEntry) -> ShareOutcome:
        return self.ask(lambda answer: self.coordinator.write(GROUP, entry, answer))

    def read(self, leader_epoch: int = 0, partition: TopicIdPartition = TASKS) -> ShareOutcome:
        return self.ask(lambda answer: self.coordinator.read(GROUP, ReadEntry(partition, leader_epoch), answer))

    def delete(self, partition: TopicIdPartition = TASKS) -> ShareOutcome:
        return self.ask(lambda answer: self.coordinator.delete(GROUP, partition, answer))

    def summary(self, partition: TopicIdPartition = TASKS) -> ShareOutcome:
        return self.ask(lambda answer: self.coordinator.read_summary(GROUP, partition, answer))


def acknowledged(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, 2, count)


def available(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, 0, count)


def change(
    *batches: StateBatch,
    start: int = 0,
    complete: int = 0,
    partition: TopicIdPartition = TASKS,
    state_epoch: int = 1,
    leader_epoch: int = 0,
) -> WriteEntry:
    found: Sequence[StateBatch] = batches
    return WriteEntry(partition, state_epoch, leader_epoch, start, complete, found)
