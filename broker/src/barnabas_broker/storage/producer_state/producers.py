"""The state of a partition's producers: the last five batches of each producer, and the open transactions.

The last batches show whether a new batch is a duplicate, or whether earlier batches are missing. `check` decides
whether a batch may be appended. `record` and `record_marker` update the state after appends, in recovery and after a
reload. `producer_snapshots` stores the state on disk.
"""

import struct
from collections.abc import Iterable
from threading import Lock
from typing import Final, NamedTuple

from barnabas_broker.storage.producer_state.producer_snapshots import SnapshotEntry
from barnabas_broker.storage.producer_state.transactions import Transactions
from barnabas_broker.storage.producer_state.verifications import Verification, Verifications
from barnabas_broker.storage.segments.transaction_index import AbortedTransaction
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT, BatchHeader
from barnabas_broker.wire.transaction_markers import Marker
from barnabas_core.errors import ApiError, ErrorCode

BATCHES_KEPT: Final = 5
"""The number of batches kept per producer, which has at most five requests in flight."""
SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1

PARTITION_MAX: Final = 4_000
"""The largest number of producers of a partition, because the event loop writes all of them to a snapshot at once."""
PARTITION_MIN: Final = 5
"""The number of producers that a partition always remembers, even if the broker as a whole remembers too many."""
BROKER_MAX: Final = 500_000
"""The largest number of producers that all partitions together should remember; they take about 200 MB."""

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
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.packed = b""
        """The last batches of the current epoch as one bytes object, oldest first."""
        self.last_timestamp_ms = -1
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
        self.last_timestamp_ms = timestamp_ms

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

    def __init__(self, total_max: int = BROKER_MAX) -> None:
        self.total = 0
        self._total_max = total_max
        self._lock = Lock()

    def add(self, count: int) -> None:
        """Add `count`, which may be negative, to the number of producers."""
        with self._lock:
            self.total += count

    @property
    def is_too_large(self) -> bool:
        """True if the broker has too many producers, so that a partition forgets an old one when it adds a new one."""
        return self.total > self._total_max


class ProducerStates:
    """The producers of one partition by producer id, in the order of their last writes."""

    __slots__ = ("_count", "producers", "transactions", "verifications")

    def __init__(self, count: ProducerCount, entries: Iterable[SnapshotEntry] = ()) -> None:
        self.producers: dict[int, Producer] = {}
        for entry in entries:
            self._restore(entry)
        newest_last = sorted(self.producers.items(), key=_importance)
        in_transaction = {each: known for each, known in newest_last if known.transaction_first_offset >= 0}
        self.producers = dict(newest_last[-max(PARTITION_MAX, len(in_transaction)) :])
        self.transactions = Transactions(
            (each, in_transaction[each].transaction_first_offset) for each in in_transaction
        )
        self.verifications = Verifications()
        self._count = count
        count.add(len(self.producers))

    def __del__(self) -> None:
        self._count.add(-len(self.producers))

    def check(self, header: BatchHeader, verification: Verification | None) -> ProducedBatch | None:
        """Return None if a client's batch may be appended, or the earlier batch that it repeats.

        The transaction of a transactional batch must be open in this log, or have `verification` as its current
        verification (KIP-890). Raises ApiError as `_check_sequence`; INVALID_TXN_STATE for a transaction that is not open;
        OUT_OF_ORDER_SEQUENCE_NUMBER for the first batch of an unknown producer that lacks earlier ones.
        """
        earlier = self._check_sequence(header)
        if earlier is None and header.attributes & TRANSACTIONAL_BIT:
            self._check_in_transaction(header, verification)
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
        # Clients below transaction.version 2 may begin with a later sequence.
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
        producer = self.producers.pop(header.producer_id, None)
        if producer is None:
            producer = self._new(header.producer_id, header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.begin_epoch(header.producer_epoch)
        self.producers[header.producer_id] = producer
        last_sequence = (header.base_sequence + delta) & SEQUENCE_MAX if header.base_sequence >= 0 else NO_SEQUENCE
        producer.add(last_sequence, base_offset + delta, delta, timestamp_ms)
        if header.attributes & TRANSACTIONAL_BIT and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self.verifications.appended(header.producer_id)
            self.transactions.begin(header.producer_id, base_offset)

    def record_marker(self, marker: Marker, offset: int, timestamp_ms: int) -> AbortedTransaction | None:
        """Update the producer's state after a transaction marker was appended.

        Return the transaction if the marker aborts it, otherwise None.
        """
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        self.verifications.ended(producer_id, epoch)
        producer = self.producers.pop(producer_id, None) or self._new(producer_id, epoch)
        if producer.epoch != epoch:
            producer.begin_epoch(epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.transaction_first_offset = -1
        producer.last_timestamp_ms = timestamp_ms
        self.producers[producer_id] = producer
        ended = self.transactions.end(producer_id, offset)
        if ended is None or marker.is_commit:
            return None
        return AbortedTransaction(producer_id, ended.first_offset, offset, ended.last_stable_offset)

    def _new(self, producer_id: int, epoch: int) -> Producer:
        """Count and return a new producer. If there are too many, forget the longest idle one without a transaction."""
        self._count.add(1)
        known = len(self.producers)
        if known >= PARTITION_MAX or (known >= PARTITION_MIN and self._count.is_too_large):
            silent = (each for each, producer in self.producers.items() if producer.transaction_first_offset < 0)
            self._forget(next(silent, None))
        return Producer(producer_id, epoch)

    def _forget(self, producer_id: int | None) -> None:
        if producer_id is not None:
            del self.producers[producer_id]
            self._count.add(-1)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers without an open transaction that have not written for `expiration_ms`."""
        for producer in list(self.producers.values()):
            if producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms:
                self._forget(producer.producer_id)

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

    def snapshot(self) -> list[SnapshotEntry]:
        """Return the entries of a `.snapshot` file: one for each remembered batch, the newest batch of a producer last.

        Kafka writes only the newest batch of a producer. Kafka can read the file, because it uses the last entry of a
        producer.
        """
        return [entry for producer in self.producers.values() for entry in _snapshot_entries(producer)]

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


def _importance(known: tuple[int, Producer]) -> tuple[bool, int]:
    """Return a sort key: the longest idle producers come first, and producers with open transactions last."""
    return known[1].transaction_first_offset >= 0, known[1].last_timestamp_ms


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


def _snapshot_entries(producer: Producer) -> Iterable[SnapshotEntry]:
    packed = producer.packed or _BATCH.pack(NO_SEQUENCE, -1, 0, producer.last_timestamp_ms)
    who = (producer.producer_id, producer.epoch)
    transaction = (producer.coordinator_epoch, producer.transaction_first_offset)
    return [SnapshotEntry._make((*who, *batch, *transaction)) for batch in _BATCH.iter_unpack(packed)]
