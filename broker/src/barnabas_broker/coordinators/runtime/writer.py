"""The writer of one partition of a coordinator's topic.

Records that are submitted in one turn of the event loop are appended as one batch. Committed records are applied in the
order of the log, then their requests are answered. A request whose records are not committed within the timeout is
answered with an error, although its records are applied if they are committed later. After an append whose outcome is
unknown the partition has to be loaded again, because the batch may or may not remain in the log.

The records of an open transaction take effect when the transaction commits. A record does not take effect if a later
record in the log with the same key has already taken effect.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from barnabas_broker.replication.record_log import KeyValue
from barnabas_broker.wire.key_values import KeyValueSlice, Marker, NewestSlice, ProducerEpoch, TransactionalKeyValues
from barnabas_core.clock import Cancellable, Timers
from barnabas_core.errors import ApiError, ErrorCode

ValueT = TypeVar("ValueT")
OtherT = TypeVar("OtherT")


class PendingRecords(Generic[ValueT]):
    """The records of open transactions in one partition, by producer id and key, and by name."""

    def __init__(self, name_of: Callable[[ValueT], str] = lambda _: "") -> None:
        """Create an empty collection; `name_of` returns the name of a record, such as its group id."""
        self._name_of = name_of
        self._by_producer: dict[int, dict[bytes, tuple[int, ValueT]]] = {}
        """The records by producer id and key, each with its order number, which is higher for later records."""
        self._producers: dict[bytes, set[int]] = {}
        self._counting: dict[bytes, int] = {}
        """The order number of the newest record that has taken effect, by key; only for keys with pending records."""
        self._keys: dict[str, dict[bytes, None]] = {}
        """The keys with pending records, by the name of their records."""
        self._last = 0

    def __bool__(self) -> bool:
        return bool(self._producers)

    def __contains__(self, key: bytes) -> bool:
        """True if an open transaction has a record with this key."""
        return key in self._producers

    @property
    def names(self) -> list[str]:
        """The names of all records."""
        return list(self._keys)

    def count(self, name: str) -> int:
        """Return the number of keys of the records with this name."""
        return len(self._keys.get(name, ()))

    def of(self, name: str) -> list[ValueT]:
        """Return the records with this name; an earlier open transaction may have another record with the same key."""
        by_producer = self._by_producer
        return [by_producer[each][key][1] for key in self._keys.get(name, ()) for each in self._producers[key]]

    def decoded(
        self, decode: Callable[[bytes, ValueT], OtherT | None], name_of: Callable[[OtherT], str]
    ) -> "PendingRecords[OtherT]":
        """Return a copy in which all records are decoded; records for which `decode` returns None are left out."""
        made: PendingRecords[OtherT] = PendingRecords(name_of)
        made._last, made._counting = self._last, dict(self._counting)
        for producer_id, pending in self._by_producer.items():
            for key, (order, value) in pending.items():
                record = decode(key, value)
                if record is not None:
                    made._put(producer_id, key, order, record)
        return made

    def add(self, producer_id: int, key: bytes, value: ValueT) -> None:
        """Add a record of an open transaction."""
        self._last += 1
        self._put(producer_id, key, self._last, value)

    def _put(self, producer_id: int, key: bytes, order: int, value: ValueT) -> None:
        self._by_producer.setdefault(producer_id, {})[key] = order, value
        if key not in self._producers:
            self._producers[key] = set()
            self._keys.setdefault(self._name_of(value), {})[key] = None
        self._producers[key].add(producer_id)

    def replaced(self, key: bytes) -> None:
        """Mark the pending records with this key as outdated, because a later record with the key has taken effect."""
        if key in self._producers:
            self._last += 1
            self._counting[key] = self._last

    def removed(self, key: bytes) -> None:
        """Remove the pending records with this key, because a tombstone has deleted the key."""
        values = [self._by_producer[each].pop(key)[1] for each in self._producers.get(key, ())]
        if values:
            self._forget(key, values[0])

    def _forget(self, key: bytes, value: ValueT) -> None:
        """Remove a key without pending records; `value` is one of the records that it had."""
        del self._producers[key]
        self._counting.pop(key, None)
        name = self._name_of(value)
        del self._keys[name][key]
        if not self._keys[name]:
            del self._keys[name]

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[bytes, ValueT]]:
        """End the transaction of a producer; return the keys and records that take effect.

        Return an empty list after an abort.
        """
        counting = []
        for key, (order, value) in self._by_producer.pop(producer_id, {}).items():
            if is_commit and order > self._counting.get(key, 0):
                self._counting[key] = order
                counting.append((key, value))
            others = self._producers[key]
            others.discard(producer_id)
            if not others:
                self._forget(key, value)
        return counting


class LoadedRecords:
    """The records read from a log: the newest value of each key, and the records of open transactions."""

    def __init__(self) -> None:
        self.newest: dict[bytes, bytes | None] = {}
        self.pending: PendingRecords[bytes] = PendingRecords()

    def add(self, some: NewestSlice) -> int:
        """Add the records that were read next from the log, or end a transaction if a transaction marker was read.

        Return the number of records, which is 0 for a marker.
        """
        if isinstance(some, Marker):
            self.newest.update(self.pending.end(some.producer_id, is_commit=some.is_commit))
            return 0
        if isinstance(some, TransactionalKeyValues):
            for key, value in some.key_values.items():
                if value is not None:
                    self.pending.add(some.producer_id, key, value)
            return len(some.key_values)
        self.newest.update(some)
        if self.pending:
            for key, value in some.items():
                if value is None:
                    self.pending.removed(key)
                else:
                    self.pending.replaced(key)
        return len(some)


_BATCH_BYTES_MAX: Final = 512 * 1024
"""The maximum size of a batch in bytes: half of the default of `max.message.bytes`."""

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
"""The error that the coordinator returns to a client, for each error of an append."""


class CoordinatorLog(Protocol):
    """The partitions of the coordinator's topic that this broker leads."""

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        done: Callable[[ApiError | None], object],
        producer: ProducerEpoch | None = None,
    ) -> None:
        """Append one batch now; `producer` makes the batch a part of the producer's transaction.

        If nothing was written, `done(error)` is called before `append` returns. Otherwise `done(None)` is called once
        the high watermark has passed the batch, or `done(error)` if it becomes impossible to know whether the batch
        will be committed; these calls come in the order of the appends.
        """
        ...

    def append_marker(
        self, partition: int, marker: Marker, transaction_version: int, done: Callable[[ApiError | None], object]
    ) -> None:
        """Append the marker that ends a transaction; `done` is called as described for `append`."""
        ...

    def read(self, partition: int, on_ready: Callable[[], object]) -> Iterator[KeyValueSlice | None]:
        """Yield the last value of each key in each portion of the log, from the start to the end of the log.

        The portions have uncommitted records, too; reading a portion takes about a millisecond. If the iterator yields
        None, the caller must wait until `on_ready` is called. Raises ApiError and StorageError.
        """
        ...

    def when_committed(self, partition: int, done: Callable[[ApiError | None], object]) -> None:
        """Call `done(None)` once all records that are now in the log are committed.

        Call `done(error)` instead if it becomes impossible to know whether the records will be committed.
        """
        ...


class Encodable(Protocol):
    """A decoded record, as the state machine uses it."""

    @property
    def name(self) -> str:
        """The group id or transactional id of the record."""
        ...

    def encode(self) -> KeyValue:
        """Return the encoded key and value; the value of a tombstone is None."""
        ...


RecordT = TypeVar("RecordT", bound=Encodable)


def name_of(record: Encodable) -> str:
    """Return the group id or transactional id of a record."""
    return record.name


class _Write(msgspec.Struct, eq=False):
    """The records of one call of `submit`, and the callback of the call.

    The callback is called when all records are committed, when an append fails, or after the write timeout.
    """

    name: str
    answer: Callable[[ErrorCode], object] | None
    parts: int = 0
    """The number of parts (`_Part`) of the write that are not committed yet."""

    def finish(self, error: ErrorCode) -> None:
        """Call the callback of the write with the error code; later calls of `finish` do nothing."""
        answer, self.answer = self.answer, None
        if answer is not None:
            answer(error)


class _Part(msgspec.Struct, Generic[RecordT], eq=False):
    """A sequence of a write's records that is short enough for one batch."""

    write: _Write
    producer: ProducerEpoch | None = None
    """The producer whose transaction contains the records, or None. Transactional records get a batch of their own."""
    is_applied: bool = False
    """True if the caller has applied the records already."""
    records: list[RecordT] = msgspec.field(default_factory=list)
    encoded: list[KeyValue] = msgspec.field(default_factory=list)
    size_bytes: int = 0


class PartitionWriter(Generic[RecordT]):
    """The writer of one partition. Each write has a name: the group id or transactional id of its records."""

    def __init__(
        self,
        partition: int,
        log: CoordinatorLog,
        timers: Timers,
        timeout_ms: int,
        apply: Callable[[RecordT], None],
        on_doubt: Callable[[], object],
        leader_epoch: int = 0,
    ) -> None:
        """Create the writer; `on_doubt` is called if the outcome of a write is unknown."""
        self.partition = partition
        self._log = log
        self._timers = timers
        self._timeout_ms = timeout_ms
        self._apply = apply
        self.on_doubt = on_doubt
        """The function that loads the partition again, because the state may differ from the log."""
        self.leader_epoch = leader_epoch
        """The leader epoch in which this broker leads the partition."""
        self._queue: list[_Part[RecordT]] = []
        self._in_flight: Counter[str] = Counter()
        self._waiting: dict[str, list[Callable[[], object]]] = {}
        self._batches: dict[_Batch, None] = {}
        """The batches that are appended but not committed, in the order of the log."""
        self.is_closed = False
        self.transactions: PendingRecords[RecordT] = PendingRecords(name_of)
        """The records of open transactions; they are applied only when their transaction commits."""

    def submit(
        self,
        name: str,
        records: Sequence[RecordT],
        answer: Callable[[ErrorCode], object],
        producer: ProducerEpoch | None = None,
        *,
        is_applied: bool = False,
    ) -> None:
        """Append records in the next turn of the event loop.

        `answer(NONE)` is called once the records are committed and applied, `answer(error)` after a failure or the
        write timeout. With a `producer`, the records belong to the transaction of the producer: `answer(NONE)` is
        called once the records are committed, and the records are applied when the transaction commits. Records that
        fit into one batch are appended atomically. With `is_applied`, the caller has applied the records: they are not
        applied again, and if they cannot be written, the partition is loaded again, because its state is ahead of the
        log.
        """
        if self.is_closed or not records:
            answer(ErrorCode.NOT_COORDINATOR if self.is_closed else ErrorCode.NONE)
            return
        if not self._queue:
            self._timers.call_soon(self._flush)
        write = _Write(name, answer)
        for part in _parts(_Part(write, producer, is_applied), records):
            write.parts += 1
            self._in_flight[name] += 1
            self._queue.append(part)

    def end_transaction(self, marker: Marker, transaction_version: int, answer: Callable[[ErrorCode], object]) -> None:
        """Append a marker after all submitted records; call `answer(NONE)` once the marker is committed and applied."""
        if self.is_closed:
            answer(ErrorCode.NOT_COORDINATOR)
            return
        self._flush()
        batch = _Batch(self, [_Part(_Write("", answer, parts=1))], marker)
        self._in_flight[""] += 1
        append_marker = self._log.append_marker
        self._append(batch, lambda done: append_marker(self.partition, marker, transaction_version, done))

    def is_writing(self, name: str) -> bool:
        """True if submitted records of the group or transactional id are not committed yet."""
        return self._in_flight[name] > 0

    def pending(self, name: str, *, of_transactions_only: bool = False) -> Iterator[RecordT]:
        """Yield the uncommitted records of the group or transactional id, in the order of the log."""
        if not self.is_writing(name):
            return
        for parts in (*(batch.parts for batch in self._batches), self._queue):
            for part in parts:
                if part.write.name == name and (part.producer is not None or not of_transactions_only):
                    yield from part.records

    def when_idle(self, name: str, callback: Callable[[], object]) -> None:
        """Call `callback` as soon as no record of the group or transactional id is being written."""
        if self.is_writing(name):
            self._waiting.setdefault(name, []).append(callback)
        else:
            callback()

    def close(self) -> None:
        """Answer pending writes with NOT_COORDINATOR, apply no more records, and call the callbacks of `when_idle`."""
        self.is_closed = True
        parts = [part for batch in self._batches for part in batch.parts] + self._queue
        for batch in self._batches:
            batch.stop_waiting()
        self._batches, self._queue = {}, []
        for part in parts:
            part.write.finish(ErrorCode.NOT_COORDINATOR)
        self._in_flight.clear()
        waiting, self._waiting = self._waiting, {}
        for callbacks in waiting.values():
            for callback in callbacks:
                callback()

    def _flush(self) -> None:
        queue, self._queue = self._queue, []
        for parts in _batches(queue):
            if self.is_closed:
                for part in parts:
                    part.write.finish(ErrorCode.NOT_COORDINATOR)
                continue
            records, producer = [each for part in parts for each in part.encoded], parts[0].producer
            self._append(_Batch(self, parts), partial(self._log.append, self.partition, records, producer=producer))

    def _append(self, batch: "_Batch", append: Callable[[Callable[[ApiError | None], object]], object]) -> None:
        self._batches[batch] = None
        append(batch.done)
        if batch in self._batches:
            batch.timer = self._timers.call_later(self._timeout_ms / 1000, batch.late)

    def finished(self, batch: "_Batch", error: ErrorCode) -> None:
        """Apply the records of a committed batch, and call the callbacks of the writes whose records are in the batch.

        If the batch failed but may be in the log, or its records are already applied, call `on_doubt`.
        """
        if batch not in self._batches:
            return
        del self._batches[batch]
        for part in batch.parts:
            if error is ErrorCode.NONE:
                self._apply_part(part)
                self._apply_marker(batch.marker)
            self._part_finished(part.write, error)
        is_doubtful = batch.timer is not None or any(part.is_applied for part in batch.parts)
        if error is not ErrorCode.NONE and is_doubtful and not self.is_closed:
            self.on_doubt()

    def _apply_part(self, part: _Part[RecordT]) -> None:
        if part.producer is not None:
            for (key, _), record in zip(part.encoded, part.records, strict=True):
                self.transactions.add(part.producer.producer_id, key, record)
            return
        for record in () if part.is_applied else part.records:
            self._apply(record)
        if self.transactions:
            for key, value in part.encoded:
                if value is None:
                    self.transactions.removed(key)
                else:
                    self.transactions.replaced(key)

    def _apply_marker(self, marker: Marker | None) -> None:
        if marker is not None:
            for _, record in self.transactions.end(marker.producer_id, is_commit=marker.is_commit):
                self._apply(record)

    def _part_finished(self, write: _Write, error: ErrorCode) -> None:
        write.parts -= 1
        self._in_flight[write.name] -= 1
        if error is not ErrorCode.NONE or not write.parts:
            write.finish(error)
        if not self._in_flight[write.name]:
            del self._in_flight[write.name]
            for callback in self._waiting.pop(write.name, ()):
                callback()


class _Batch(msgspec.Struct, eq=False):
    """An appended batch that is neither committed nor failed yet."""

    writer: PartitionWriter[Any]
    parts: list[_Part[Any]]
    marker: Marker | None = None
    """The transaction marker if the batch is a marker; None if the batch holds records."""
    timer: Cancellable | None = None
    """The timer of the write timeout, None until the batch is in the log."""

    def stop_waiting(self) -> None:
        """Cancel the write timeout."""
        if self.timer is not None:
            self.timer.cancel()

    def done(self, error: ApiError | None) -> None:
        """Finish the batch, which is committed, or has failed with `error`."""
        self.stop_waiting()
        code = ErrorCode.NONE if error is None else error.code
        self.writer.finished(self, _ANSWERS.get(code, code))

    def late(self) -> None:
        """Answer all writes of the batch with a timeout error, and still wait for the outcome of the append."""
        for part in self.parts:
            part.write.finish(_ANSWERS[ErrorCode.REQUEST_TIMED_OUT])


def _parts(part: _Part[RecordT], records: Iterable[RecordT]) -> Iterator[_Part[RecordT]]:
    """Yield the records in order, split into parts like `part` of at most the maximum size of a batch."""
    for record in records:
        key, value = record.encode()
        size_bytes = len(key) + len(value or b"")
        if part.records and part.size_bytes + size_bytes > _BATCH_BYTES_MAX:
            yield part
            part = _Part(part.write, part.producer, part.is_applied)
        part.records.append(record)
        part.encoded.append((key, value))
        part.size_bytes += size_bytes
    yield part


def _batches(parts: Iterable[_Part[RecordT]]) -> Iterator[list[_Part[RecordT]]]:
    """Group queued records, in order, into batches of at most _BATCH_BYTES_MAX bytes.

    Records of a transaction are never in a batch with other records.
    """
    batch: list[_Part[RecordT]] = []
    size_bytes = 0
    for part in parts:
        is_full = size_bytes + part.size_bytes > _BATCH_BYTES_MAX
        if batch and (is_full or part.producer is not None or batch[0].producer is not None):
            yield batch
            batch, size_bytes = [], 0
        batch.append(part)
        size_bytes += part.size_bytes
    if batch:
        yield batch
