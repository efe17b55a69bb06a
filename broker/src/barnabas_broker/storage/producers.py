"""What a partition knows of its idempotent producers: the last five batches of each, to tell duplicates from gaps.

Pure state: `check` decides, `record` applies, on the live path, in recovery and on a reload alike. `producer_snapshots`
keeps it on disk.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas_broker.storage.producer_snapshot import SnapshotEntry
from barnabas_broker.wire.record_batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from barnabas_core.errors import ApiError, ErrorCode

BATCHES_KEPT: Final = 5
"""A producer has at most five requests in flight, so no retry is older."""
SEQUENCE_MAX: Final = 2**31 - 1
NO_SEQUENCE: Final = -1


class ProducedBatch(NamedTuple):
    """A batch that was appended. `base_sequence` and `base_offset` follow from the last ones and the delta."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """Sequence of its first record; sequences wrap from 2^31 - 1 to 0."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class Producer:
    """One producer id in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp_ms",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[ProducedBatch] = deque(maxlen=BATCHES_KEPT)
        self.last_timestamp_ms = -1
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1

    @property
    def last_sequence(self) -> int:
        """Of the newest batch; -1 when it is unknown."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def duplicate_of(self, epoch: int, base_sequence: int, last_sequence: int) -> ProducedBatch | None:
        """The kept batch that has exactly these sequences."""
        if epoch != self.epoch:
            return None
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.base_sequence == base_sequence:
                return batch
        return None


class ProducerStates:
    """The producers of one partition, by producer id."""

    __slots__ = ("producers",)

    def __init__(self, entries: Iterable[SnapshotEntry] = ()) -> None:
        self.producers: dict[int, Producer] = {}
        for entry in entries:
            self._restore(entry)

    def check(self, header: BatchHeader) -> ProducedBatch | None:
        """Whether a client's batch may be appended: None, or the earlier batch that this one repeats.

        Raises ApiError: INVALID_PRODUCER_EPOCH for a fenced producer, OUT_OF_ORDER_SEQUENCE_NUMBER for a gap,
        INVALID_TXN_STATE for a plain batch within a transaction.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        duplicate = producer.duplicate_of(epoch, first, (first + header.last_offset_delta) & SEQUENCE_MAX)
        if duplicate is None:
            _check_epoch_and_sequence(producer, epoch, first)
            if producer.transaction_first_offset >= 0 and not header.attributes & TRANSACTIONAL_BIT:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {producer.producer_id} has an open transaction; this batch is not part of it",
                )
        return duplicate

    def record(self, header: BatchHeader, base_offset: int, timestamp_ms: int) -> None:
        """A batch was appended at `base_offset`."""
        if header.producer_id < 0 or header.attributes & CONTROL_BIT:
            return
        delta = header.last_offset_delta
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif producer.epoch != header.producer_epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        last_sequence = (header.base_sequence + delta) & SEQUENCE_MAX if header.base_sequence >= 0 else NO_SEQUENCE
        producer.batches.append(ProducedBatch(last_sequence, base_offset + delta, delta, timestamp_ms))
        producer.last_timestamp_ms = timestamp_ms

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers that have been silent for so long and have no transaction open."""
        for producer in list(self.producers.values()):
            if producer.transaction_first_offset < 0 and now_ms - producer.last_timestamp_ms >= expiration_ms:
                del self.producers[producer.producer_id]

    def last_offsets(self) -> dict[int, int]:
        """By producer id, the last offset of its last batch."""
        return {each.producer_id: each.batches[-1].last_offset for each in self.producers.values() if each.batches}

    def snapshot(self) -> list[SnapshotEntry]:
        """For the `.snapshot` file: an entry for each batch that is known, of each producer the newest last.

        Kafka writes the newest alone, and of several entries of a producer it takes the last one.
        """
        return [entry for producer in self.producers.values() for entry in _snapshot_entries(producer)]

    def _restore(self, entry: SnapshotEntry) -> None:
        producer = self.producers.get(entry.producer_id)
        if producer is None or producer.epoch != entry.producer_epoch:
            producer = self.producers[entry.producer_id] = Producer(entry.producer_id, entry.producer_epoch)
        producer.last_timestamp_ms = entry.timestamp_ms
        producer.coordinator_epoch = entry.coordinator_epoch
        producer.transaction_first_offset = entry.transaction_first_offset
        if entry.last_offset >= 0:
            batch = ProducedBatch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp_ms)
            producer.batches.append(batch)


def _check_epoch_and_sequence(producer: Producer, epoch: int, base_sequence: int) -> None:
    if epoch < producer.epoch:
        raise ApiError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {producer.producer_id} sent epoch {epoch}; epoch {producer.epoch} has taken its place",
        )
    expected = 0 if epoch > producer.epoch else (producer.last_sequence + 1) & SEQUENCE_MAX
    if base_sequence != expected:
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer.producer_id} sent sequence {base_sequence}; {expected} comes next",
        )


def _snapshot_entries(producer: Producer) -> Iterable[SnapshotEntry]:
    for batch in producer.batches or (ProducedBatch(NO_SEQUENCE, -1, 0, producer.last_timestamp_ms),):
        yield SnapshotEntry(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            last_sequence=batch.last_sequence,
            last_offset=batch.last_offset,
            offset_delta=batch.offset_delta,
            timestamp_ms=batch.timestamp_ms,
            coordinator_epoch=producer.coordinator_epoch,
            transaction_first_offset=producer.transaction_first_offset,
        )
