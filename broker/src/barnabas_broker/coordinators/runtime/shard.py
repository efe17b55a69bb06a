"""One partition of a coordinator's topic under one election of this broker: read from start to end, then served.

A new leader has all that was ever committed and perhaps more, which may be committed yet or already is without its
knowledge. So it reads everything, and serves once its high watermark has reached what it has read. A record counts
until the next of its key, so only the newest of each key is decoded; one of a transaction counts from the marker on
that commits it (`pending_records`). All partitions are loaded by turns: after a
failover they may be many, and small ones do not wait for a large one.
"""

import logging
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas_broker.coordinators.runtime.pending_records import LoadedRecords
from barnabas_broker.coordinators.runtime.turns import Turns
from barnabas_broker.coordinators.runtime.writer import CoordinatorLog, PartitionWriter, RecordT
from barnabas_broker.storage.errors import CorruptLog, StorageError
from barnabas_core.clock import Cancellable, Clock, Timers
from barnabas_core.errors import ApiError

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_DAMAGED_RETRY_S: Final = 30.0
"""To read everything once more costs more than to be refused, and damage seldom mends itself."""
_PROGRESS_S: Final = 2.0
_APPLIED_AT_ONCE: Final = 500
"""Records; about a millisecond."""
_KEY_BYTES_SHOWN: Final = 64


class RuntimeEnvironment(NamedTuple):
    """What the runtime of a coordinator is given of the world."""

    topic: str
    log: CoordinatorLog
    clock: Clock
    timers: Timers
    turns: Turns
    is_awake: Callable[[], bool]
    """False while another broker may coordinate without this one knowing."""
    write_timeout_ms: int


class LeftOut:
    """Counts what one loading left out, as it cannot be decoded or restored, and remembers the first. A million of
    them are reported in one line.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first = ""

    def add(self, what: str, error: Exception) -> None:
        """It costs its own entry alone, and stays in the log until another record of its key replaces it."""
        self.count += 1
        self.first = self.first or f"{what}: {type(error).__name__}: {error}"


class StateMachine(Protocol[RecordT]):
    """What the records of one partition say, and what is done with it. It is made for each loading."""

    def decoder(self) -> Callable[[bytes, bytes], RecordT | None]:
        """Decodes the records of one loading; None for kinds that this machine does not know. Raises where a record
        is malformed.
        """
        ...

    def apply(self, record: RecordT) -> None:
        """A record is committed, or read again. The only place where durable state changes."""
        ...

    def restore(self, left_out: LeftOut) -> Iterator[None]:
        """Make what serves out of all that was read, in slices of about a millisecond."""
        ...

    def contents(self) -> str:
        """How much was loaded, in words."""
        ...

    def close(self) -> None:
        """Answer all that wait, cancel all timers: the partition is led elsewhere."""
        ...


MachineT = TypeVar("MachineT", bound=StateMachine[Any])


class ShardState(Enum):
    """How far a shard is, by Kafka's names."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """What was read cannot be loaded, or the log cannot be read; it is tried again."""
    CLOSED = "closed"


class Shard(Generic[MachineT]):
    """One partition. Once closed it stays so."""

    def __init__(
        self,
        environment: RuntimeEnvironment,
        partition: int,
        leader_epoch: int,
        new_machine: Callable[[PartitionWriter[Any]], MachineT],
        on_loaded: Callable[[MachineT], object],
        on_doubt: Callable[[], object],
    ) -> None:
        """`on_doubt`: what is known may not be what the log says, so it has to be loaded again."""
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
        """Another broker leads the partition."""
        self.state = ShardState.CLOSED
        self._writer.close()
        self.machine.close()

    def _apply(self, record: Any) -> None:
        self.machine.apply(record)

    def load(self) -> None:
        """Begin, or go on, to load. Until it is loaded clients are answered that their coordinator is loading."""
        self._environment.turns.add(self._advance)

    def _advance(self) -> bool:
        """Do one slice; False when there is nothing more to do for now. What fails is tried again: meanwhile the names
        of this partition are not served, and all others are.
        """
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
        """Each step is a slice; False to wait for `load`."""
        self.machine = self._new_machine(self._writer)
        self.left_out = LeftOut()
        self._keys = 0
        loaded = LoadedRecords()
        for some in self._environment.log.read(self._partition, self.load):
            if some is not None:
                self._keys += loaded.add(some)
            yield some is not None
        decode = self.machine.decoder()
        while loaded.newest:
            self._apply_some(loaded.newest, decode)
            yield True
        self._writer.transactions = loaded.pending.decoded(partial(self._decoded, decode))
        self._patience = self._environment.timers.call_later(_PROGRESS_S, self._report_uncommitted)
        self._environment.log.when_committed(self._partition, self._committed)

    def _apply_some(self, newest: dict[bytes, bytes | None], decode: Callable[[bytes, bytes], Any]) -> None:
        pop, apply = newest.popitem, self.machine.apply
        for _ in range(min(_APPLIED_AT_ONCE, len(newest))):
            key, value = pop()
            if value is None:
                continue
            try:
                record = decode(key, value)
                if record is not None:
                    apply(record)
            except Exception as error:
                self._leave_out(key, error)

    def _decoded(self, decode: Callable[[bytes, bytes], Any], key: bytes, value: bytes) -> Any:
        try:
            return decode(key, value)
        except Exception as error:
            self._leave_out(key, error)
            return None

    def _leave_out(self, key: bytes, error: Exception) -> None:
        self.left_out.add(f"key {key[:_KEY_BYTES_SHOWN].hex()}", error)

    def _committed(self, error: ApiError | None) -> None:
        """All that was read is committed, or the log cannot say."""
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
        """Once more, a little later; the same reason is logged once. What is neither the log nor the disk is a bug."""
        self.state = ShardState.FAILED
        is_bug = not isinstance(error, (ApiError, StorageError))
        if str(error) != self._complaint:
            self._complaint = str(error)
            level = logging.ERROR if is_bug else logging.WARNING
            trace = error if is_bug else None
            message = "%s%s cannot be loaded: %s; trying again"
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
        _logger.log(level, "%s: loaded %s in %.2f s", self._name, self.machine.contents(), seconds)
        if self.left_out.count:
            message = "%s: left out %d records that cannot be decoded or restored, the first with %s"
            _logger.error(message, self._name, self.left_out.count, self.left_out.first)

    def _report_progress(self) -> None:
        now_s = self._environment.clock.monotonic_s()
        if now_s - self._reported_s >= _PROGRESS_S:
            self._reported_s = now_s
            _logger.info("%s: loading, %d records so far", self._name, self._keys)

    def _report_uncommitted(self) -> None:
        if self.state is not ShardState.CLOSED:
            message = "%s: all is read, but not all of it is committed yet: waiting for the other replicas"
            _logger.warning(message, self._name)
