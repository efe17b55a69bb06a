"""The rules that decide which records of a batch compaction keeps."""

import struct
from collections.abc import Callable, Sequence
from typing import Final

from barnabas_broker.storage.cleaner.batch_reader import ReadBatch
from barnabas_broker.storage.cleaner.round_transactions import RoundTransactions
from barnabas_broker.storage.helper.record_walk import WalkedRecord, unpacked_records
from barnabas_broker.storage.helper.requests import FilterCounts, RetentionRules
from barnabas_broker.storage.segments.transaction_index import AbortedTransaction
from barnabas_broker.wire.compression import compress
from barnabas_broker.wire.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    sealed_batch,
)
from barnabas_broker.wire.records import BrokenRecords, encode_varint
from barnabas_broker.wire.transaction_markers import decode_marker
from barnabas_core.config.log_config import LONG_MAX

NO_TIMESTAMP: Final = -1
Cleaned = bytes | bytearray | memoryview | None
"""The bytes of a batch after compaction; None if the batch is dropped."""


class BatchFilter:
    """The filter that applies the rules of a compaction to batches.

    `newest_offset` returns the newest offset of a key, or -1 for an unknown key.
    """

    def __init__(
        self, rules: RetentionRules, newest_offset: Callable[[bytes], int], transactions: RoundTransactions
    ) -> None:
        self._rules = rules
        self._newest_offset = newest_offset
        self._transactions = transactions
        self.counts = FilterCounts()
        self.aborted: list[AbortedTransaction] = []
        """The aborted transactions for the `.txnindex` of the new segment, in the order of their markers."""

    def cleaned(self, batch: ReadBatch, *, must_stay: bool) -> Cleaned:
        """Return the bytes to write for `batch`, or None if the batch is dropped; update `counts` and `aborted`.

        A batch that loses all its records is written without records if `must_stay`, or if it is the last batch of an
        active producer; otherwise it is dropped. A batch that cannot be decoded stays unchanged, so that the rest of
        the log can be compacted.
        """
        header = batch.header
        kept_count: int = header.record_count
        cleaned: Cleaned = batch.data
        stays = must_stay or self._is_last_of_producer(header)
        if header.is_control:
            kept_count, cleaned = self._cleaned_marker(batch, stays)
        elif header.base_offset < self._rules.end_offset:
            try:
                kept_count, cleaned = self._filtered(batch, stays)
            except (BrokenRecords, struct.error):  # struct.error means a timestamp beyond 64 bits.
                self.counts.batches_not_understood += 1
        self.counts.records_read += header.record_count
        self.counts.records_kept += kept_count
        return cleaned

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        if header.is_control:
            return self._rules.epochs.get(header.producer_id) == header.producer_epoch
        return header.producer_id >= 0 and self._rules.last_offsets.get(header.producer_id) == header.last_offset

    def _cleaned_marker(self, batch: ReadBatch, must_stay: bool) -> tuple[int, Cleaned]:
        """Return how many records of a transaction marker stay, and the bytes to write (None if the marker is removed).

        A marker stays while the log has batches of its transaction, then for delete.retention.ms (KAFKA-8522).
        """
        header, rules = batch.header, self._rules
        ended = self._transactions.end(header)
        is_needed = ended.has_batches or header.base_offset >= rules.end_offset
        if is_needed and ended.aborted is not None:
            self.aborted.append(ended.aborted)
        is_other = bool(header.record_count) and decode_marker(batch.data, header) is None
        if is_needed or must_stay or is_other:
            return header.record_count, batch.data
        if header.record_count and not header.attributes & DELETE_HORIZON_BIT:
            data, records = unpacked_records(batch.chunk, batch.start, header, rules.unpacked_bytes_max)
            return header.record_count, rebuilt(header, data, records, self._horizon_ms())
        is_over = not header.record_count or rules.now_ms >= header.base_timestamp_ms
        return (0, None) if is_over else (header.record_count, batch.data)

    def _filtered(self, batch: ReadBatch, must_stay: bool) -> tuple[int, Cleaned]:
        header = batch.header
        if self._transactions.is_aborted(header):
            return 0, emptied(header) if must_stay else None
        data, records = unpacked_records(batch.chunk, batch.start, header, self._rules.unpacked_bytes_max)
        kept = self._kept(header, records)
        if not kept:
            return 0, emptied(header) if must_stay else None
        horizon_ms = self._new_horizon_ms(header, kept)
        if len(kept) == len(records) and horizon_ms is None:
            return len(kept), batch.data
        return len(kept), rebuilt(header, data, kept, horizon_ms)

    def _kept(self, header: BatchHeader, records: Sequence[WalkedRecord]) -> list[WalkedRecord]:
        """Return the records that are the newest of their keys, without tombstones whose delete horizon has passed.

        Records without a key are dropped. Records at or above the key map's end offset are all kept.
        """
        rules, newest_offset = self._rules, self._newest_offset
        expired = bool(header.attributes & DELETE_HORIZON_BIT) and rules.now_ms >= header.base_timestamp_ms
        base_offset, end_offset = header.base_offset, rules.end_offset
        kept = []
        for record in records:
            offset, key = base_offset + record[4], record[5]
            if offset >= end_offset:
                kept.append(record)
            elif key is None:
                self.counts.records_without_key += 1
            elif offset >= newest_offset(key) and (record[6] or not expired):
                kept.append(record)
        return kept

    def _new_horizon_ms(self, header: BatchHeader, kept: Sequence[WalkedRecord]) -> int | None:
        """Return the delete horizon to set (KIP-534), or None.

        A batch gets a horizon if it keeps tombstones, has no horizon yet, and ends below the key map's end offset.
        """
        rules = self._rules
        if header.attributes & DELETE_HORIZON_BIT or header.last_offset >= rules.end_offset:
            return None
        has_tombstones = any(not record[6] for record in kept)
        return self._horizon_ms() if has_tombstones else None

    def _horizon_ms(self) -> int:
        return min(self._rules.now_ms + self._rules.delete_retention_ms, LONG_MAX)


def emptied(header: BatchHeader) -> bytearray:
    """Return a batch without records that keeps the offsets, sequence, leader epoch and largest timestamp."""
    kept_bits = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return sealed_batch(header._replace(attributes=kept_bits, base_timestamp_ms=NO_TIMESTAMP, record_count=0), b"")


def rebuilt(header: BatchHeader, data: bytes, kept: Sequence[WalkedRecord], horizon_ms: int | None) -> bytearray:
    """Return the batch with only the records in `kept`, compressed with the same codec.

    The delete horizon `horizon_ms` is stored in place of the base timestamp, so the timestamp deltas are encoded again
    (KIP-534). If `horizon_ms` is None, the batch keeps its base timestamp, which may be an earlier delete horizon.
    """
    base_ms, attributes = header.base_timestamp_ms, header.attributes
    if horizon_ms is None:
        records = b"".join([data[start:end] for start, _, end, *_ in kept])
    else:
        attributes |= DELETE_HORIZON_BIT
        records = b"".join([_with_delta(data, record, base_ms + record[3] - horizon_ms) for record in kept])
    largest_ms = max([base_ms + record[3] for record in kept])
    changed = header._replace(
        attributes=attributes,
        base_timestamp_ms=base_ms if horizon_ms is None else horizon_ms,
        max_timestamp_ms=header.max_timestamp_ms if attributes & LOG_APPEND_TIME_BIT else largest_ms,
        record_count=len(kept),
    )
    return sealed_batch(changed, compress(header.compression, records))


def _with_delta(data: bytes, record: WalkedRecord, timestamp_delta: int) -> bytes:
    _, rest, end, *_ = record
    fields = b"\0" + encode_varint(timestamp_delta) + data[rest:end]
    return encode_varint(len(fields)) + fields
