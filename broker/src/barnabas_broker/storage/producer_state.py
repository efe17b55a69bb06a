"""The state of a partition's idempotent producers and of its transactions, in memory.

The last five batches of each producer show whether a new batch is a duplicate, or whether earlier batches are missing.
`check` decides whether a batch may be appended. `record` and `record_marker` update the state after appends, in
recovery and after a reload. `checkpoints` stores the state on disk.

The transactions that are open, or whose marker is not below the high watermark yet, determine the last stable offset,
up to which read_committed consumers read.

Verifications ask the coordinator whether a transaction is open. The first batch of a transaction in a log waits for the
response. Without a verification, a batch that arrives after the end of its transaction could open the transaction
again, and no marker would ever end it (KIP-890). If a transaction marker is appended first, the response no longer
counts.
"""

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from barnabas_broker.storage.disk.checkpoints import SnapshotEntry
from barnabas_broker.storage.segments.indexes import AbortedTransaction
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT, BatchHeader
from barnabas_core.errors import ApiError, ErrorCode

NONE_UNSTABLE: Final = 2**63 - 1


class EndedTransaction(NamedTuple):
    """The first offset of an ended transaction, and the last stable offset after its end."""

    first_offset: int
    last_stable_offset: int


class Transactions:
    """The transactions of a partition.

    When a transaction ends, `first_unstable_offset` stays unchanged until the next call of `stable_until`.
    """

    __slots__ = ("_ended", "_open", "first_unstable_offset")

    def __init__(self, opened: Iterable[tuple[int, int]] = ()) -> None:
        """Create the state from the open transactions: pairs of producer id and first offset."""
        self._open: dict[int, int] = dict(sorted(opened, key=lambda each: each[1]))
        self._ended: list[tuple[int, int]] = []
        """The first offset and the marker offset of each ended transaction, in the order of the markers.

        `stable_until` removes the transactions whose markers are below the high watermark.
        """
        self.first_unstable_offset = NONE_UNSTABLE
        self._find_first()

    def begin(self, producer_id: int, offset: int) -> None:
        """Open a transaction whose first offset is `offset`."""
        self._open[producer_id] = offset
        self.first_unstable_offset = min(self.first_unstable_offset, offset)

    def end(self, producer_id: int, marker_offset: int) -> EndedTransaction | None:
        """Close and return the producer's open transaction; return None if it has none."""
        first = self._open.pop(producer_id, None)
        if first is None:
            return None
        self._ended.append((first, marker_offset))
        return EndedTransaction(first, next(iter(self._open.values()), marker_offset + 1))

    def stable_until(self, high_watermark: int) -> int:
        """Forget transactions whose markers are below the high watermark, and return the last stable offset."""
        if self.first_unstable_offset >= high_watermark:
            return high_watermark
        del self._ended[: bisect_left(self._ended, high_watermark, key=_marker_offset)]
        self._find_first()
        return min(high_watermark, self.first_unstable_offset)

    def oldest(self) -> int | None:
        """Return the producer id of the oldest open transaction, or None."""
        return next(iter(self._open), None)

    def _find_first(self) -> None:
        oldest_open = next(iter(self._open.values()), NONE_UNSTABLE)
        self.first_unstable_offset = min([oldest_open, *(first for first, _ in self._ended)])


def _marker_offset(ended: tuple[int, int]) -> int:
    return ended[1]


class Verification(msgspec.Struct, eq=False, weakref=True):
    """A request to the coordinator to verify a transaction. Each batch that waits for it holds it until the append."""

    epoch: int
    has_own_epoch: bool
    """True if each transaction has its own epoch (transaction.version 2)."""


_NONE: Final[WeakValueDictionary[int, Verification]] = WeakValueDictionary()
"""The verifications of a log that has had none, which is never changed; a dictionary of its own takes 700 bytes."""


class Verifications:
    """The verifications of transactions, by producer id. A verification that no batch holds any more is removed.

    If a verification is removed before a waiting batch is appended, the batch must be verified again.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open = _NONE

    def begin(self, producer_id: int, epoch: int, *, has_own_epoch: bool) -> Verification:
        """Return the verification of the producer's transaction.

        All batches of a producer with the same epoch share a verification.
        """
        known = self._open.get(producer_id)
        if known is None or known.epoch < epoch:
            known = Verification(epoch, has_own_epoch)
            if self._open is _NONE:
                self._open = WeakValueDictionary()
            self._open[producer_id] = known
        return known

    def current(self, producer_id: int) -> Verification | None:
        """Return the verification of the producer that counts, or None.

        A marker, a later epoch or the start of the transaction in this log removes a verification.
        """
        return self._open.get(producer_id)

    def appended(self, producer_id: int) -> None:
        """Remove the verification of the producer's transaction, because the transaction is open in this log now."""
        self._open.pop(producer_id, None)

    def ended(self, producer_id: int, epoch: int) -> None:
        """Remove the producer's verification after a transaction marker.

        The verification stays if it is for the producer's next transaction.
        """
        known = self._open.get(producer_id)
        if known is not None and not (known.has_own_epoch and known.epoch == epoch):
            del self._open[producer_id]


BATCHES_KEPT: Final = 5
"""The number of batches kept per producer, which has at most five requests in flight."""
SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1

PARTITION_MAX: Final = 50_000
"""The largest number of producers that write to a partition within KEPT_MS."""
BROKER_MAX: Final = 500_000
"""The largest number of producers that write to all partitions of a broker within KEPT_MS; they take up to 250 MB."""
KEPT_MS: Final = 180_000
"""The time in ms for which no producer is forgotten after a write: a client retries a batch for two minutes."""
KEPT_IF_SCARCE: Final = 1_000
"""The number of producers that a partition keeps if the broker as a whole has too many silent ones."""
_MARK_MS: Final = 15_000
_FORGOTTEN_TOGETHER: Final = 256
"""The number of producers that a full partition forgets at once, because the search for the first has a cost."""

_BATCH: Final = struct.Struct("<iqiq")
_KEPT: Final = BATCHES_KEPT * _BATCH.size


class ProducedBatch(NamedTuple):
    """An appended batch. The first sequence and offset are computed from the last ones and `offset_delta`."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """The offset of the batch's first record."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """The sequence of the batch's first record; sequences wrap from 2^31 - 1 to 0."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class Producer:
    """The state of a producer id in a partition.

    The last batches are packed into bytes to save memory, because a broker may have many producers.
    """

    __slots__ = (
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "packed",
        "producer_id",
        "transaction_first_offset",
        "written_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.packed = b""
        """The last batches of the current epoch as one bytes object, oldest first."""
        self.last_timestamp_ms = -1
        self.written_offset = -1
        """The offset of the last record or marker of the producer, which orders the silent ones."""
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1

    @property
    def batches(self) -> list[ProducedBatch]:
        """The last batches of the producer, at most five, oldest first."""
        return [ProducedBatch(*fields) for fields in _BATCH.iter_unpack(self.packed)]

    @property
    def last_sequence(self) -> int:
        """The last sequence of the newest batch; -1 if it is unknown."""
        return _BATCH.unpack_from(self.packed, len(self.packed) - _BATCH.size)[0] if self.packed else NO_SEQUENCE

    def add(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int) -> None:
        """Add an appended batch, and keep only the last five batches."""
        self.packed = (self.packed + _BATCH.pack(last_sequence, last_offset, offset_delta, timestamp_ms))[-_KEPT:]
        self.last_timestamp_ms, self.written_offset = timestamp_ms, last_offset

    def begin_epoch(self, epoch: int) -> None:
        """Set the epoch, in which sequences begin at 0 again, and forget the batches of the previous epoch."""
        self.epoch = epoch
        self.packed = b""

    def duplicate_of(self, epoch: int, base_sequence: int, last_sequence: int) -> ProducedBatch | None:
        """Return the remembered batch that has this epoch, first sequence and last sequence, or None."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.base_sequence == base_sequence:
                return batch
        return None


class ProducerCount:
    """The number of producers in all partitions of a broker. A lock guards it, because threads load logs, too."""

    def __init__(self, total_max: int = BROKER_MAX, partition_max: int = PARTITION_MAX) -> None:
        self.total = 0
        self.total_max, self.partition_max = total_max, partition_max
        self._lock = Lock()

    def add(self, count: int) -> None:
        """Add `count`, which may be negative, to the number of producers."""
        with self._lock:
            self.total += count

    @property
    def is_full(self) -> bool:
        """True if the broker has as many producers as it may have."""
        return self.total >= self.total_max

    @property
    def is_scarce(self) -> bool:
        """True if the broker has so many producers that partitions with many of them forget the silent ones."""
        return self.total * 4 >= self.total_max * 3


class ProducerStates:
    """The producers of one partition by producer id.

    A partition or broker with too many producers forgets those that were silent for longest, but none that has written
    within KEPT_MS. If there is none to forget, batches of further producers are refused.
    """

    __slots__ = ("_count", "_idle", "_marks", "producers", "transactions", "verifications")

    def __init__(self, count: ProducerCount, entries: Iterable[SnapshotEntry] = ()) -> None:
        self.producers: dict[int, Producer] = {}
        for entry in entries:
            self._restore(entry)
        known = sorted(self.producers.values(), key=_last_write)
        self._idle = {each.producer_id: None for each in known if each.transaction_first_offset < 0}
        """The producers without an open transaction, in the order of their last writes."""
        self._marks: list[tuple[int, int]] = []
        """Times in ms, the oldest first, and the offset below which all producers had written at each of them."""
        self.transactions = Transactions(
            (each.producer_id, each.transaction_first_offset) for each in known if each.transaction_first_offset >= 0
        )
        self.verifications = Verifications()
        self._count = count
        count.add(len(self.producers))

    def __del__(self) -> None:
        self._count.add(-len(self.producers))

    def check(self, header: BatchHeader, verification: Verification | None, now_ms: int) -> ProducedBatch | None:
        """Return None if a client's batch may be appended, or the earlier batch that it repeats.

        The transaction of a transactional batch must be open in this log, or have `verification` as its current
        verification (KIP-890). Raises ApiError, REQUEST_TIMED_OUT if there are too many producers.
        """
        earlier = self._check_sequence(header)
        if earlier is None:
            if header.attributes & TRANSACTIONAL_BIT:
                self._check_in_transaction(header, verification)
            if header.producer_id not in self.producers:
                self._make_room(now_ms)
        return earlier

    def _check_sequence(self, header: BatchHeader) -> ProducedBatch | None:
        """Return None if a client's batch continues its producer, or the earlier batch that it repeats.

        Raises ApiError: INVALID_PRODUCER_EPOCH for a fenced producer, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap,
        INVALID_TXN_STATE for a non-transactional batch during a transaction.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch != producer.epoch or first != (producer.last_sequence + 1) & SEQUENCE_MAX:
            if first < 0:  # Only coordinators write batches without sequence numbers.
                _check_epoch(producer, epoch)
                return None
            duplicate = producer.duplicate_of(epoch, first, (first + header.last_offset_delta) & SEQUENCE_MAX)
            if duplicate is not None:
                return duplicate
            _check_epoch_and_sequence(producer, epoch, first)
        if producer.transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer.producer_id} has an open transaction, but the batch is not transactional",
            )
        return None

    def _check_in_transaction(self, header: BatchHeader, verification: Verification | None) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        if self.is_in_transaction(producer_id, epoch):
            return
        current = self.verifications.current(producer_id)
        if verification is None or verification is not current or verification.epoch != epoch:
            message = f"the transaction of producer {producer_id} with epoch {epoch} has ended, or was not verified"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, message)
        if verification.has_own_epoch and header.base_sequence > 0 and producer_id not in self.producers:
            message = f"the first sequence of producer {producer_id} is {header.base_sequence}, but must be 0"
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, message)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """True if the producer has an open transaction with the given epoch in the partition."""
        producer = self.producers.get(producer_id)
        return producer is not None and producer.epoch == epoch and producer.transaction_first_offset >= 0

    def record(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """Update the producer's state after a batch was appended at `base_offset`."""
        if header.producer_id < 0:
            return
        delta = header.last_offset_delta
        producer_id = header.producer_id
        producer = self.producers.get(producer_id)
        if producer is None:
            producer = self._new(producer_id, header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.begin_epoch(header.producer_epoch)
        self._idle.pop(producer_id, None)
        last_sequence = (header.base_sequence + delta) & SEQUENCE_MAX if header.base_sequence >= 0 else NO_SEQUENCE
        producer.add(last_sequence, base_offset + delta, delta, timestamp_ms)
        if producer.transaction_first_offset < 0:
            if header.attributes & TRANSACTIONAL_BIT:
                producer.transaction_first_offset = base_offset
                self.verifications.appended(producer_id)
                self.transactions.begin(producer_id, base_offset)
            else:
                self._idle[producer_id] = None

    def record_marker(self, marker: Marker, offset: int, timestamp_ms: int) -> AbortedTransaction | None:
        """Update the producer's state after a transaction marker was appended.

        Return the transaction if the marker aborts it, otherwise None.
        """
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        self.verifications.ended(producer_id, epoch)
        producer = self.producers.get(producer_id) or self._new(producer_id, epoch)
        if producer.epoch != epoch:
            producer.begin_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.transaction_first_offset = -1
        producer.last_timestamp_ms, producer.written_offset = timestamp_ms, offset
        self._idle.pop(producer_id, None)
        self._idle[producer_id] = None
        ended = self.transactions.end(producer_id, offset)
        if ended is None or marker.is_commit:
            return None
        return AbortedTransaction(producer_id, ended.first_offset, offset, ended.last_stable_offset)

    def _new(self, producer_id: int, epoch: int) -> Producer:
        self._count.add(1)
        producer = self.producers[producer_id] = Producer(producer_id, epoch)
        return producer

    def _make_room(self, now_ms: int) -> None:
        """Forget silent producers if there are too many. Raises ApiError if none has been silent for KEPT_MS."""
        self._mark(now_ms)
        if self._is_full:
            self._forget_silent(now_ms, _FORGOTTEN_TOGETHER)
            if self._is_full:
                message = (
                    f"{len(self.producers)} producers have written to the partition, and {self._count.total} to all "
                    f"partitions of the broker; {self._count.partition_max} and {self._count.total_max} are allowed in "
                    f"{KEPT_MS // 1000} seconds; try again later, and use fewer producers"
                )
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, message)

    @property
    def _is_full(self) -> bool:
        return len(self.producers) >= self._count.partition_max or self._count.is_full

    def _mark(self, now_ms: int) -> None:
        """Note how far producers have written, so that it is known later which ones have been silent since."""
        marks = self._marks
        if marks and now_ms < marks[-1][0]:
            marks.clear()  # The clock was set back.
        if not marks or now_ms - marks[-1][0] >= _MARK_MS:
            newest = next(reversed(self._idle), None)
            marks.append((now_ms, 0 if newest is None else self.producers[newest].written_offset + 1))
        while len(marks) > 1 and now_ms - marks[1][0] >= KEPT_MS:
            del marks[0]

    def _forget_silent(self, now_ms: int, count_max: int) -> None:
        """Forget up to `count_max` of the producers that have not written for KEPT_MS, the longest silent ones first.

        The broker's clock decides, because clients choose the timestamps of their records.
        """
        marked_ms, end_offset = self._marks[0]
        if now_ms - marked_ms >= KEPT_MS:
            for producer_id in list(islice(self._idle, max(count_max, 0))):
                if self.producers[producer_id].written_offset >= end_offset:
                    break
                self._forget(producer_id)

    def _forget(self, producer_id: int) -> None:
        del self.producers[producer_id], self._idle[producer_id]
        self._count.add(-1)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers without an open transaction that have not written for `expiration_ms`.

        If the broker has too many producers, forget also silent ones of this partition, down to KEPT_IF_SCARCE.
        """
        for producer_id in list(self._idle):
            if now_ms - self.producers[producer_id].last_timestamp_ms >= expiration_ms:
                self._forget(producer_id)
        self._mark(now_ms)
        if self._count.is_scarce:
            self._forget_silent(now_ms, len(self.producers) - KEPT_IF_SCARCE)

    def oldest_transaction_ms(self) -> int | None:
        """Return the time of the last write by the producer of the oldest open transaction, or None."""
        producer_id = self.transactions.oldest()
        return None if producer_id is None else self.producers[producer_id].last_timestamp_ms

    def last_offsets(self) -> dict[int, int]:
        """Return the last offset of each producer's last batch, by producer id."""
        batches = ((each.producer_id, each.batches) for each in self.producers.values())
        return {producer_id: kept[-1].last_offset for producer_id, kept in batches if kept}

    def epochs_without_batches(self) -> dict[int, int]:
        """Return, by producer id, the current epoch of each producer that has written no batch in that epoch."""
        return {each.producer_id: each.epoch for each in self.producers.values() if not each.packed}

    def snapshot(self) -> Iterator[SnapshotEntry]:
        """Return the entries of a `.snapshot` file: one for each remembered batch, the newest batch of a producer last.

        Kafka writes only the newest batch of a producer. Kafka can read the file, because it uses the last entry of a
        producer. A thread may read the entries, which do not change with the producers.
        """
        return _snapshot_entries(
            [
                (
                    each.producer_id,
                    each.epoch,
                    each.packed or _BATCH.pack(NO_SEQUENCE, -1, 0, each.last_timestamp_ms),
                    each.coordinator_epoch,
                    each.transaction_first_offset,
                )
                for each in self.producers.values()
            ]
        )

    def _restore(self, entry: SnapshotEntry) -> None:
        producer = self.producers.get(entry.producer_id)
        if producer is None or producer.epoch != entry.producer_epoch:
            producer = Producer(entry.producer_id, entry.producer_epoch)
            self.producers[entry.producer_id] = producer
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.transaction_first_offset = entry.transaction_first_offset
        if entry.last_offset >= 0:
            producer.add(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
        producer.last_timestamp_ms = entry.timestamp_ms


def _last_write(producer: Producer) -> tuple[int, int]:
    return producer.written_offset, producer.last_timestamp_ms


def _check_epoch(producer: Producer, epoch: int) -> None:
    if epoch < producer.epoch:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer.producer_id} sent epoch {epoch}; the current epoch is {producer.epoch}",
        )


def _check_epoch_and_sequence(producer: Producer, epoch: int, base_sequence: int) -> None:
    _check_epoch(producer, epoch)
    expected = 0 if epoch > producer.epoch else (producer.last_sequence + 1) & SEQUENCE_MAX
    if base_sequence != expected:
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer.producer_id} sent sequence {base_sequence}; {expected} was expected",
        )


def _snapshot_entries(rows: Iterable[tuple[int, int, bytes, int, int]]) -> Iterator[SnapshotEntry]:
    for producer_id, epoch, packed, coordinator_epoch, first_offset in rows:
        for batch in _BATCH.iter_unpack(packed):
            yield SnapshotEntry._make((producer_id, epoch, *batch, coordinator_epoch, first_offset))
