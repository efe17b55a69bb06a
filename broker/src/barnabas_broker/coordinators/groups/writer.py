"""Appends to one partition of `__consumer_offsets`: what is submitted in one turn of the loop goes into one batch.

Records are applied when they are committed, in the order of the log, then those who submitted them are answered. An
answer that takes longer than the timeout is an error, but the records, once they are committed, are applied all the
same. What was written and then failed may be in the log or not, now or after the next election: only the log can tell,
so it has to be read again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Protocol

from barnabas_broker.coordinators.groups.records import GroupRecord, encode
from barnabas_broker.replication.record_log import KeyValue
from barnabas_broker.wire.key_values import KeyValues
from barnabas_core.clock import Cancellable, Timers
from barnabas_core.errors import ApiError, ErrorCode

_BATCH_BYTES_MAX: Final = 512 * 1024
"""Half of what `max.message.bytes` allows by default."""

_ANSWERS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""What an error of the log means to a client of the coordinator."""


class OffsetsLog(Protocol):
    """The partitions of `__consumer_offsets` that this broker leads."""

    def append(self, partition: int, records: Sequence[KeyValue], done: Callable[[ApiError | None], object]) -> None:
        """Append one batch now. `done(error)` before this returns: nothing was written. Else later, in the order of the
        appends: `done(None)` once the high watermark is past it, `done(error)` when nobody can say whether it will be.
        """
        ...

    def read(self, partition: int, on_ready: Callable[[], object]) -> Iterator[KeyValues | None]:
        """The last value of each key, for one slice after the other from the log's start to its end, committed or not;
        a slice takes about a millisecond. After a None there is nothing yet: go on when `on_ready` is called. ApiError,
        StorageError.
        """
        ...

    def when_committed(self, partition: int, done: Callable[[ApiError | None], object]) -> None:
        """`done(None)` once all that is in the log now is committed, `done(error)` when nobody can say that."""
        ...


@dataclass(slots=True, eq=False)
class _Write:
    """Records that were submitted together; answered when the last of them is committed, or the first has failed."""

    group_id: str
    answer: Callable[[ErrorCode], object] | None
    uncommitted: int

    def finish(self, error: ErrorCode) -> None:
        """Answers the request; any later call does nothing."""
        answer, self.answer = self.answer, None
        if answer is not None:
            answer(error)


_Entry = tuple[GroupRecord, KeyValue, _Write]


class PartitionWriter:
    """The appends to one partition."""

    def __init__(
        self,
        partition: int,
        log: OffsetsLog,
        timers: Timers,
        timeout_ms: int,
        apply: Callable[[GroupRecord], None],
        on_doubt: Callable[[], object],
    ) -> None:
        """`on_doubt`: records were written and nobody knows whether they stay, so what was applied may be outdated."""
        self._partition = partition
        self._log = log
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._apply = apply
        self._on_doubt = on_doubt
        self._queue: list[_Entry] = []
        self._in_flight: Counter[str] = Counter()
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._batches: dict[_Batch, None] = {}
        """What is appended and not committed, in the order of the log."""
        self._closed = False

    def submit(self, group_id: str, records: Sequence[GroupRecord], answer: Callable[[ErrorCode], object]) -> None:
        """Append a group's records at the end of this turn; `answer(NONE)` when they are committed and applied."""
        if self._closed or not records:
            answer(ErrorCode.NOT_COORDINATOR if self._closed else ErrorCode.NONE)
            return
        if not self._queue:
            self._timers.call_soon(self._flush)
        write = _Write(group_id, answer, len(records))
        self._in_flight[group_id] += len(records)
        self._queue.extend((record, encode(record), write) for record in records)

    def is_writing(self, group_id: str) -> bool:
        """Whether records of the group wait for the log."""
        return self._in_flight[group_id] > 0

    def pending(self, group_id: str) -> Iterator[GroupRecord]:
        """The group's records that wait for the log, in their order."""
        for entries in (*(batch.entries for batch in self._batches), self._queue):
            yield from (record for record, _, write in entries if write.group_id == group_id)

    def when_idle(self, group_id: str, callback: Callable[[], object]) -> None:
        """Call back once no record of the group waits; now if none does."""
        if self.is_writing(group_id):
            self._waiting.setdefault(group_id, []).append(callback)
        else:
            callback()

    def close(self) -> None:
        """The partition is led elsewhere: who waits is told so, nothing is applied any more."""
        self._closed = True
        entries = [entry for batch in self._batches for entry in batch.entries] + self._queue
        for batch in self._batches:
            batch.stop_waiting()
        self._batches, self._queue = {}, []
        for _, _, write in entries:
            write.finish(ErrorCode.NOT_COORDINATOR)
        self._in_flight.clear()
        waiting, self._waiting = self._waiting, {}
        for callbacks in waiting.values():
            for callback in callbacks:
                callback()

    def _flush(self) -> None:
        queue, self._queue = self._queue, []
        for entries in _batches(queue):
            batch = _Batch(self, entries)
            self._batches[batch] = None
            self._log.append(self._partition, [key_value for _, key_value, _ in entries], batch.done)
            if batch in self._batches:
                batch.timer = self._timers.call_later(self._timeout_ms / 1000, batch.late)

    def finished(self, batch: "_Batch", error: ErrorCode) -> None:
        """A batch is committed or has failed."""
        if batch not in self._batches:
            return
        del self._batches[batch]
        for record, _, write in batch.entries:
            if error is ErrorCode.NONE:
                self._apply(record)
            self._entry_finished(write, error)
        if error is not ErrorCode.NONE and batch.timer is not None and not self._closed:
            self._on_doubt()

    def _entry_finished(self, write: _Write, error: ErrorCode) -> None:
        write.uncommitted -= 1
        self._in_flight[write.group_id] -= 1
        if error is not ErrorCode.NONE or not write.uncommitted:
            write.finish(error)
        if not self._in_flight[write.group_id]:
            del self._in_flight[write.group_id]
            for callback in self._waiting.pop(write.group_id, ()):
                callback()


@dataclass(slots=True, eq=False)
class _Batch:
    """One append whose outcome is not known yet."""

    writer: PartitionWriter
    entries: list[_Entry]
    timer: Cancellable | None = None
    """Set from when the batch is in the log."""

    def stop_waiting(self) -> None:
        """Its outcome is known, or nobody asks for it any more."""
        if self.timer is not None:
            self.timer.cancel()

    def done(self, error: ApiError | None) -> None:
        """The log has committed the batch, or refused it with `error`."""
        self.stop_waiting()
        code = ErrorCode.NONE if error is None else error.code
        self.writer.finished(self, _ANSWERS.get(code, code))

    def late(self) -> None:
        """The log takes too long: answer, but go on waiting for it."""
        for _, _, write in self.entries:
            write.finish(_ANSWERS[ErrorCode.REQUEST_TIMED_OUT])


def _batches(entries: Iterable[_Entry]) -> Iterator[list[_Entry]]:
    """The entries in order, cut where a batch would become too large. What was submitted together is in one batch, and
    so in the log or not, unless it is larger than a batch.
    """
    batch: list[_Entry] = []
    size_bytes = 0
    for write_bytes, of_write in _writes(entries):
        if batch and size_bytes + write_bytes > _BATCH_BYTES_MAX:
            yield batch
            batch, size_bytes = [], 0
        for entry in of_write:
            entry_bytes = _size_bytes(entry)
            if batch and size_bytes + entry_bytes > _BATCH_BYTES_MAX:
                yield batch
                batch, size_bytes = [], 0
            batch.append(entry)
            size_bytes += entry_bytes
    if batch:
        yield batch


def _writes(entries: Iterable[_Entry]) -> Iterator[tuple[int, list[_Entry]]]:
    """What was submitted together, and its size in bytes."""
    for _, of_write in groupby(entries, lambda entry: id(entry[2])):
        together = list(of_write)
        yield sum(map(_size_bytes, together)), together


def _size_bytes(entry: _Entry) -> int:
    key, value = entry[1]
    return len(key) + len(value or b"")
