"""The partitions of a coordinator's topic that this broker leads: the runtime loads, finds and closes them.

A state machine for each partition (`shard.StateMachine`) interprets the records. The state machine handles the
requests, and submits records to its `writer`, which answers each request once its records are committed.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Generic

from barnabas_broker.coordinators.runtime.shard import MachineT, RuntimeEnvironment, Shard, ShardState
from barnabas_broker.coordinators.runtime.writer import PartitionWriter
from barnabas_core.clock import Cancellable
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.java_hash import coordinator_partition


class Runtime(Generic[MachineT]):
    """The partitions of one coordinator's topic that this broker leads."""

    def __init__(
        self,
        environment: RuntimeEnvironment,
        partition_count: int,
        new_machine: Callable[[PartitionWriter[Any]], MachineT],
        serve: Callable[[MachineT], Iterator[None]],
    ) -> None:
        """Create the runtime.

        After a partition is loaded, the runtime calls `serve`, and runs the returned iterator to its end. Other tasks
        may run between two items of the iterator.
        """
        self.partition_count = partition_count
        """The number of partitions of the topic; until the topic exists, the number in the settings."""
        self._environment = environment
        self._new_machine = new_machine
        self._serve = serve
        self._shards: dict[int, Shard[MachineT]] = {}
        self._sweeps: dict[Callable[[MachineT], Iterator[None]], Cancellable] = {}

    def elect(self, partition: int, leader_epoch: int) -> None:
        """Load a partition that this broker leads, unless its loading has begun in this leader epoch or a later one.

        In a new leader epoch the log may differ, because other brokers may have led the partition in between.
        """
        known = self._shards.get(partition)
        if known is None or known.leader_epoch < leader_epoch:
            self._load(partition, leader_epoch)

    def _load(self, partition: int, leader_epoch: int) -> None:
        self.resign(partition)
        on_doubt = partial(self._load, partition, leader_epoch)
        shard = Shard(self._environment, partition, leader_epoch, self._new_machine, self._on_loaded, on_doubt)
        self._shards[partition] = shard
        shard.load()

    def _on_loaded(self, machine: MachineT) -> None:
        self._environment.turns.run(self._serve(machine))

    def resign(self, partition: int) -> None:
        """Close a partition that this broker no longer leads, and answer the partition's waiting requests."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            shard.close()

    def resign_all(self) -> None:
        """Close all partitions, because the topic was deleted or the broker stops."""
        for partition in list(self._shards):
            self.resign(partition)

    def stop(self) -> None:
        """Cancel the periodic sweeps and close all partitions, because the broker stops."""
        for timer in self._sweeps.values():
            timer.cancel()
        self.resign_all()

    def find(self, name: str) -> MachineT:
        """Return the state machine for a group id or transactional id.

        Raises ApiError with NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS.
        """
        return self.at(coordinator_partition(name, self.partition_count))

    def at(self, partition: int) -> MachineT:
        """Return the state machine of a partition.

        Raises ApiError with COORDINATOR_LOAD_IN_PROGRESS or with NOT_COORDINATOR. A process that was suspended raises
        NOT_COORDINATOR until it has read the latest metadata, because other brokers may have become leaders.
        """
        shard = self._shards.get(partition)
        if shard is None or not self._environment.is_awake():
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if shard.state is not ShardState.ACTIVE:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard.machine

    def loaded(self) -> list[MachineT]:
        """Return the state machines of all loaded partitions."""
        return [shard.machine for shard in self._shards.values() if shard.state is ShardState.ACTIVE]

    def sweep(self, slices: Callable[[MachineT], Iterator[None]]) -> None:
        """Call `slices` for each loaded partition, and run the returned iterator to its end.

        Other tasks may run between two items of the iterator.
        """
        for machine in self.loaded():
            self._environment.turns.run(slices(machine))

    def sweep_every(self, interval_s: float, slices: Callable[[MachineT], Iterator[None]]) -> None:
        """Every `interval_s` seconds, call `slices` for each loaded partition, and run the returned iterator."""

        def again() -> None:
            self.sweep(slices)
            self.sweep_every(interval_s, slices)

        self._sweeps[slices] = self._environment.timers.call_later(interval_s, again)

    def left_out_count(self) -> int:
        """Return the number of records in loaded partitions that could not be decoded or restored."""
        return sum(shard.left_out.count for shard in self._shards.values() if shard.state is ShardState.ACTIVE)

    def partition_counts(self) -> Mapping[str, int]:
        """Return the number of partitions in each state, by Kafka's names of the states."""
        counts = {"loading": 0, "active": 0, "failed": 0}
        for shard in self._shards.values():
            counts[shard.state.value] += 1
        return counts
