"""A partition of a coordinator's topic in one leader epoch of this broker: the partition is loaded, and then served.

A new leader's log has all committed records and may have uncommitted records, and its high watermark may be too
low. So the shard reads the whole log, and serves once the high watermark has reached the end of the log. Only the
newest record of each key is decoded, unless the log yields all records, because its topic is pruned instead of
compacted. The records of a transaction take effect with its commit marker (`writer`). Partitions take turns
while they are loaded, so that a small partition does not wait for a large partition after a failover.

The partitions of a coordinator's topic that this broker leads: the runtime loads, finds and closes them. A state
machine for each partition (`StateMachine`) interprets the records. The state machine handles the requests,
and submits records to its `writer`, which answers each request once its records are committed.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from barnabas_broker.coordinators.runtime.turns import Turns
from barnabas_broker.coordinators.runtime.writer import CoordinatorLog, LoadedRecords, PartitionWriter, RecordT, name_of
from barnabas_broker.storage.errors import CorruptLog, StorageError
from barnabas_broker.wire.key_values import KeyValueList
from barnabas_core.clock import Cancellable, Clock, Timers
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import coordinator_partition

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_DAMAGED_RETRY_S: Final = 30.0
"""The pause in seconds before a damaged log is read again; it is long, because reading again seldom succeeds."""
_PROGRESS_S: Final = 2.0
_APPLIED_AT_ONCE: Final = 500
"""The number of records that are applied before other tasks may run: about a millisecond of work."""
_APPLIED_IN_ORDER_AT_ONCE: Final = 50
"""The same number for records that change a state instead of replacing it; a record may change hundreds of batches."""
_KEY_BYTES_SHOWN: Final = 64


class RuntimeEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of a coordinator's runtime."""

    topic: str
    log: CoordinatorLog
    clock: Clock
    timers: Timers
    turns: Turns
    is_awake: Callable[[], bool]
    """Return False if the process was suspended and has not read the latest metadata since."""
    write_timeout_ms: int


class LeftOut:
    """The number of records that were left out of the state because they could not be decoded or restored.

    `first` describes the first of these records and its error.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, what: str, error: Exception) -> None:
        """Count a record that could not be decoded or restored; the record stays in the log."""
        self.count += 1
        self.first = self.first or f"{what}: {type(error).__name__}: {error}"


class StateMachine(Protocol[RecordT]):
    """The state that the records of a partition define; each loading of the partition creates a new state machine."""

    def decoder(self) -> Callable[[bytes, Any], RecordT | None]:
        """Return a decoder, which returns None for unknown kinds of records and raises for malformed records.

        The decoder gets a value of None, a tombstone, only if the log yields all records in their order.
        """
        ...

    def apply(self, record: RecordT) -> None:
        """Apply a record that was just committed, or read from the log. Nothing else changes the durable state."""
        ...

    def restore(self, left_out: LeftOut) -> Iterator[None]:
        """Build the in-memory state from the loaded records, in steps of about a millisecond."""
        ...

    def contents(self) -> str:
        """Return the amount of loaded state as text for a log line."""
        ...

    def close(self) -> None:
        """Answer waiting requests with NOT_COORDINATOR and cancel timers: this broker no longer leads the partition."""
        ...


MachineT = TypeVar("MachineT", bound=StateMachine[Any])


class ShardState(Enum):
    """The states of a shard, with Kafka's names."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """The state after a failed loading, until the shard loads the log again."""
    CLOSED = "closed"


class Shard(Generic[MachineT]):
    """A partition that is loading, loaded, failed or closed. A closed shard never opens again."""

    def __init__(
        self,
        environment: RuntimeEnvironment,
        partition: int,
        leader_epoch: int,
        new_machine: Callable[[PartitionWriter[Any]], MachineT],
        on_loaded: Callable[[MachineT], object],
        on_doubt: Callable[[], object],
    ) -> None:
        """Create the shard; `on_doubt` is called if the state may differ from the log and has to be loaded again."""
        self.leader_epoch = leader_epoch
        self.state = ShardState.LOADING
        self.left_out = LeftOut()
        self._environment = environment
        self._partition = partition
        self._new_machine = new_machine
        self._on_loaded = on_loaded
        self._writer: PartitionWriter[Any] = PartitionWriter(
            partition,
            environment.log,
            environment.timers,
            environment.write_timeout_ms,
            self._apply,
            on_doubt,
            leader_epoch,
        )
        self.machine = new_machine(self._writer)
        self._name = f"{environment.topic}-{partition}"
        self._keys = 0
        self._started_s = self._reported_s = environment.clock.monotonic_s()
        self._steps = self._read()
        self._patience: Cancellable | None = None
        self._complaint = ""

    def close(self) -> None:
        """Stop serving and answer the waiting requests, because this broker no longer leads the partition."""
        self.state = ShardState.CLOSED
        self._writer.close()
        self.machine.close()

    def _apply(self, record: Any) -> None:
        self.machine.apply(record)

    def load(self) -> None:
        """Begin or continue to load the partition. Clients get COORDINATOR_LOAD_IN_PROGRESS until the loading ends."""
        self._environment.turns.add(self._advance)

    def _advance(self) -> bool:
        """Take one step of loading; return False if loading has ended or failed, or waits until `load` is called."""
        if self.state is ShardState.CLOSED:
            return False
        try:
            more = next(self._steps, False)
        except Exception as error:
            self._failed(error)
            return False
        self._report_progress()
        return more

    def _read(self) -> Iterator[bool]:
        """Read and apply the log in steps.

        Yield True after a step. Yield False while the next data of the log is being read; the log calls `load` again
        when the data is ready.
        """
        self.machine = self._new_machine(self._writer)
        self.left_out = LeftOut()
        self._keys = 0
        loaded = LoadedRecords()
        decode = self.machine.decoder()
        for some in self._environment.log.read(self._partition, self.load):
            if isinstance(some, KeyValueList):
                yield from self._apply_in_order(some, decode)
                continue
            if some is not None:
                self._keys += loaded.add(some)
            yield some is not None
        while loaded.newest:
            self._apply_some(loaded.newest, decode)
            yield True
        self._writer.transactions = loaded.pending.decoded(partial(self._decoded, decode), name_of)
        self._patience = self._environment.timers.call_later(_PROGRESS_S, self._report_uncommitted)
        self._environment.log.when_committed(self._partition, self._committed)

    def _apply_some(self, newest: dict[bytes, bytes | None], decode: Callable[[bytes, Any], Any]) -> None:
        pop = newest.popitem
        for _ in range(min(_APPLIED_AT_ONCE, len(newest))):
            key, value = pop()
            if value is not None:
                self._apply_one(key, value, decode)

    def _apply_in_order(self, some: KeyValueList, decode: Callable[[bytes, Any], Any]) -> Iterator[bool]:
        """Apply all records that were read next, if the log yields more than the newest record of each key."""
        self._keys += len(some.records)
        for number, (key, value) in enumerate(some.records, 1):
            self._apply_one(key, value, decode)
            if number % _APPLIED_IN_ORDER_AT_ONCE == 0:
                yield True
        yield True

    def _apply_one(self, key: bytes, value: bytes | None, decode: Callable[[bytes, Any], Any]) -> None:
        try:
            record = decode(key, value)
            if record is not None:
                self.machine.apply(record)
        except Exception as error:
            self._leave_out(key, error)

    def _decoded(self, decode: Callable[[bytes, Any], Any], key: bytes, value: bytes) -> Any:
        try:
            return decode(key, value)
        except Exception as error:
            self._leave_out(key, error)
            return None

    def _leave_out(self, key: bytes, error: Exception) -> None:
        self.left_out.add(f"key {key[:_KEY_BYTES_SHOWN].hex()}", error)

    def _committed(self, error: ApiError | None) -> None:
        """Restore the state once all records of the log are committed; after an error, schedule another loading."""
        if self._patience is not None:
            self._patience.cancel()
        if self.state is ShardState.CLOSED:
            return
        if error is not None:
            self._failed(error)
            return
        self._steps = self._restore()
        self.load()

    def _restore(self) -> Iterator[bool]:
        for _ in self.machine.restore(self.left_out):
            yield True
        self.state = ShardState.ACTIVE
        self._report_loaded()
        self._on_loaded(self.machine)

    def _failed(self, error: Exception) -> None:
        """Schedule another attempt to load the partition; log `error` unless the same error was logged last."""
        self.state = ShardState.FAILED
        is_bug = not isinstance(error, (ApiError, StorageError))
        if str(error) != self._complaint:
            self._complaint = str(error)
            level = logging.ERROR if is_bug else logging.WARNING
            trace = error if is_bug else None
            message = "%sthe partition %s cannot be loaded: %s; the broker will try again"
            _logger.log(level, message, "bug: " * is_bug, self._name, error, exc_info=trace)
        is_damage = is_bug or isinstance(error, CorruptLog)
        self._environment.timers.call_later(_DAMAGED_RETRY_S if is_damage else _RETRY_S, self._again)

    def _again(self) -> None:
        if self.state is not ShardState.CLOSED:
            self._steps = self._read()
            self.load()

    def _report_loaded(self) -> None:
        seconds = self._environment.clock.monotonic_s() - self._started_s
        level = logging.INFO if self._keys else logging.DEBUG
        _logger.log(level, "%s: the coordinator has loaded %s in %.2f s", self._name, self.machine.contents(), seconds)
        if self.left_out.count:
            message = "%s: the coordinator ignores %d records that it cannot decode or restore; the first is %s"
            _logger.error(message, self._name, self.left_out.count, self.left_out.first)

    def _report_progress(self) -> None:
        now_s = self._environment.clock.monotonic_s()
        if now_s - self._reported_s >= _PROGRESS_S:
            self._reported_s = now_s
            _logger.info(
                "%s: the coordinator is still loading the partition, and has read %d records", self._name, self._keys
            )

    def _report_uncommitted(self) -> None:
        if self.state is not ShardState.CLOSED:
            message = (
                "%s: all records are read, but some are not committed yet; the partition is not served until the other "
                "replicas have copied these records"
            )
            _logger.warning(message, self._name)


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
