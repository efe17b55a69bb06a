"""The second half of a compaction: copying the records that stay from adjacent segments to one new segment.

The transactions whose batches or markers the current compaction of a log has read so far. Batches must be passed in
the order of their offsets.
"""

import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
from mmh3 import mmh3_x64_128_utupledigest

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.files import FileSystem, LogFile
from barnabas_broker.storage.errors import InvalidBatch
from barnabas_broker.storage.helper import (
    CleanSegments,
    FilterCounts,
    KeysMapped,
    MapKeys,
    RetentionRules,
    SegmentCleaned,
    WalkedRecord,
    unpacked_records,
)
from barnabas_broker.storage.segments.indexes import AbortedTransaction, IndexPages, SegmentIndexes, index_entry
from barnabas_broker.storage.segments.segment import valid_header
from barnabas_broker.wire.key_values import decode_marker
from barnabas_broker.wire.record_batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    crc_matches,
    parse_header,
    sealed_batch,
)
from barnabas_broker.wire.records import BrokenRecords, compress, encode_varint
from barnabas_core.config.log_config import LONG_MAX

Pacer = Callable[[int], None]
"""A callback that gets the number of bytes of each read or write, and waits to limit the rate."""


class ReadBatch(msgspec.Struct, frozen=True):
    """A batch that begins at byte `start` of `chunk` and at byte `position` of its segment."""

    header: BatchHeader
    chunk: bytes
    start: int
    position: int

    @property
    def end_position(self) -> int:
        """The position in the segment at which the next batch begins."""
        return self.position + self.header.size_bytes

    @property
    def data(self) -> memoryview:
        """The bytes of the batch, including the header."""
        return memoryview(self.chunk)[self.start : self.start + self.header.size_bytes]


def read_batches(file: LogFile, size_bytes: int, offset_min: int, chunk_bytes: int, pace: Pacer) -> Iterator[ReadBatch]:
    """Yield the batches in the first `size_bytes` of a segment's file; their offsets must rise from `offset_min`.

    A batch longer than `chunk_bytes` is read in one piece. Raises OSError and InvalidBatch.
    """
    chunk, start, position = b"", 0, 0
    while position < size_bytes:
        if start + HEADER_BYTES > len(chunk):
            chunk, start = file.read_at(position, min(chunk_bytes, size_bytes - position)), 0
            pace(len(chunk))
        header = valid_header(chunk, start, position, size_bytes, offset_min)
        if start + header.size_bytes > len(chunk):
            wanted = max(chunk_bytes, header.size_bytes)
            chunk, start = file.read_at(position, min(wanted, size_bytes - position)), 0
            pace(len(chunk))
        if len(chunk) < header.size_bytes or not crc_matches(memoryview(chunk), start, header):
            raise InvalidBatch(
                position, f"the CRC of the batch at offset {header.base_offset} does not match the batch's bytes"
            )
        yield ReadBatch(header, chunk, start, position)
        start += header.size_bytes
        position += header.size_bytes
        offset_min = header.last_offset + 1


class Ended(msgspec.Struct, frozen=True):
    """The transaction that a marker ends."""

    aborted: AbortedTransaction | None
    """The entry of the transaction index, or None if the transaction was committed."""
    has_batches: bool
    """True if this compaction has read batches of the transaction; consumers may then still need its marker."""


class RoundTransactions:
    """The transactions in the section of a log that one compaction reads.

    `aborted` are the aborted transactions with records in the section.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=_first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        """The last aborted transaction of each producer, by producer id.

        Transactions that begin after the current batch are not included yet.
        """
        self._met: set[int] = set()
        """The ids of producers with a transactional batch after their last marker."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Process the next batch of the compaction; return True if the batch belongs to an aborted transaction."""
        self._begin_until(header)
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        aborted = self._aborted.get(header.producer_id)
        return aborted is not None and header.base_offset <= aborted.last_offset

    def end(self, header: BatchHeader) -> Ended:
        """Return the transaction that the marker ends, and forget it."""
        self._begin_until(header)
        has_batches = header.producer_id in self._met
        self._met.discard(header.producer_id)
        return Ended(self._aborted.pop(header.producer_id, None), has_batches)

    def _begin_until(self, header: BatchHeader) -> None:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            begun = self._coming.pop()
            self._aborted[begun.producer_id] = begun


def _first_offset(aborted: AbortedTransaction) -> int:
    return aborted.first_offset


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


def clean_segments(files: FileSystem, request: CleanSegments, batch_filter: BatchFilter, pace: Pacer) -> SegmentCleaned:
    """Write the records that stay to `.cleaned` files; remove the files after an error.

    The last batch of the old segments stays, even without records, so that the new segment ends at the same offset.
    After a crash, recovery reads from this end offset which old segments the new one replaces. Raises OSError and
    InvalidBatch.
    """
    paths = [
        f"{request.directory}/{checkpoints.segment_file(each.base_offset, checkpoints.LOG)}"
        for each in request.segments
    ]
    base_offset = request.segments[0].base_offset
    cleaned = CleanedSegment(files, request.directory, base_offset, request.index_interval_bytes, request.read_bytes)
    last = max((each for each in request.segments if each.size_bytes), default=None)
    try:
        for path, segment in zip(paths, request.segments, strict=True):
            file = files.open_existing(path)
            for batch in read_batches(file, segment.size_bytes, segment.base_offset, request.read_bytes, pace):
                is_last = segment is last and batch.end_position == segment.size_bytes
                kept = batch_filter.cleaned(batch, must_stay=is_last)
                if kept is not None:
                    cleaned.append(kept)
                    pace(len(kept))
        cleaned.finish(files.modified_ms(paths[-1]), batch_filter.aborted)
    except BaseException:
        cleaned.remove()
        raise
    bytes_read = sum(each.size_bytes for each in request.segments)
    return SegmentCleaned(base_offset, cleaned.size_bytes, bytes_read, batch_filter.counts)


class CleanedSegment:
    """The writer of a new segment's `.cleaned` files. Raises OSError.

    Batches must be appended in the order of their offsets. After the last batch, the caller calls `finish`, or after an
    error `remove`.
    """

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, index_interval_bytes: int, write_bytes: int
    ) -> None:
        self.size_bytes = 0
        self._files = files
        self._directory = directory
        self._paths = [
            f"{directory}/{checkpoints.segment_file(base_offset, suffix)}{checkpoints.CLEANED}"
            for suffix in (checkpoints.LOG, checkpoints.INDEX, checkpoints.TIME_INDEX)
        ]
        log, index, times = self._paths
        self._file = files.open_file(log)
        self._file.truncate(0)
        self._indexes = SegmentIndexes.of(
            files, (index, times), (0, 0), base_offset, index_interval_bytes, IndexPages(2)
        )
        self._indexes.create_files()
        self._aborted_path = (
            f"{directory}/{checkpoints.segment_file(base_offset, checkpoints.TXN_INDEX)}{checkpoints.CLEANED}"
        )
        self._write_bytes = write_bytes
        self._waiting = bytearray()

    def append(self, batch: bytes | bytearray | memoryview) -> None:
        """Append a batch, which is buffered until `write_bytes` bytes can be written at once."""
        header = parse_header(batch, 0)
        self._indexes.observe(self.size_bytes, header.last_offset, header.max_timestamp_ms)
        self.size_bytes += len(batch)
        self._waiting += batch
        if len(self._waiting) >= self._write_bytes:
            self._write()

    def _write(self) -> None:
        self._file.append(self._waiting, self.size_bytes - len(self._waiting))
        self._waiting = bytearray()

    def finish(self, modified_ms: int, aborted: Sequence[AbortedTransaction]) -> None:
        """Sync the files, and set the modification time that retention uses for records without timestamps.

        `aborted` are the transactions for the `.txnindex`, in the order of their markers.
        """
        self._write()
        self._indexes.seal()
        if aborted:
            self._files.write_atomically(self._aborted_path, b"".join(map(index_entry, aborted)), sync=True)
        for path in self._paths:
            self._files.open_file(path).sync()
        self._files.set_modified_ms(self._paths[0], modified_ms)
        self._files.sync_dir(self._directory)

    def remove(self) -> None:
        """Remove the unfinished files."""
        for path in (*self._paths, self._aborted_path):
            self._files.remove(path)


SLOT_BYTES: Final = 24
"""The bytes of an offset and a 128-bit hash of the key. Two keys with equal hashes are too rare to matter."""
_NUMBERS: Final = 3
_ROOM: Final = 1.1
"""The factor by which the number of slots is increased before it is rounded down to a prime."""


class OffsetMap:
    """A hash table from key hashes to newest offsets, with open addressing and double hashing."""

    __slots__ = ("_numbers", "_slots", "count", "count_max")

    def __init__(self, bytes_max: int, keys_max: int, load_factor: float) -> None:
        """Allocate slots for `keys_max` keys, in at most `bytes_max` bytes.

        `load_factor` (0 to 1) is the maximum share of used slots.
        """
        wanted = min(bytes_max // SLOT_BYTES, int(keys_max / load_factor * _ROOM) + 11)
        self._slots = _prime_at_most(max(wanted, 3))
        self._numbers = array("Q", [0]) * (self._slots * _NUMBERS)
        self.count = 0
        self.count_max = min(
            max(int(self._slots * load_factor), 1), self._slots - 1
        )  # One slot stays free, because the search for a missing key ends at a free slot.

    def put(self, key: bytes, offset: int) -> bool:
        """Store the newest offset of a key. Return False and store nothing if there is no room for a new key."""
        place, high, low = self._find(key)
        numbers = self._numbers
        if not numbers[place]:
            if self.count >= self.count_max:
                return False
            self.count += 1
            numbers[place + 1] = high
            numbers[place + 2] = low
        numbers[place] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """Return the newest offset of a key, or -1 for a key that is not in the map."""
        return self._numbers[self._find(key)[0]] - 1

    def _find(self, key: bytes) -> tuple[int, int, int]:
        """Return the position of the key's slot, or of the free slot for it, and the two halves of the key's hash."""
        numbers, slots = self._numbers, self._slots
        low, high = mmh3_x64_128_utupledigest(key)
        slot = low % slots
        step = 1 + high % (slots - 1)
        while True:
            place = slot * _NUMBERS
            if not numbers[place] or (numbers[place + 2] == low and numbers[place + 1] == high):
                return place, high, low
            slot += step
            if slot >= slots:
                slot -= slots


def _prime_at_most(number: int) -> int:
    """Return the largest prime up to `number`. With a prime number of slots, a search can reach every slot."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number


def map_keys(files: FileSystem, request: MapKeys, pace: Pacer) -> tuple[OffsetMap, KeysMapped]:
    """Build a map from each key to the offset of its newest record; return the map and the response to `request`.

    The map covers the records of the request below the `end_offset` of the response. Raises OSError and InvalidBatch.
    """
    keys_max = request.end_offset - request.start_offset
    offsets = OffsetMap(request.map_bytes_max, keys_max, request.load_factor)
    records = 0
    end_offset = request.end_offset
    for batch in _dirty_batches(files, request, pace):
        records += batch.header.record_count
        first_unmapped = _add(offsets, batch, request)
        if first_unmapped is not None:
            end_offset = first_unmapped
            break
    return offsets, KeysMapped(end_offset, offsets.count, records)


def _dirty_batches(files: FileSystem, request: MapKeys, pace: Pacer) -> Iterator[ReadBatch]:
    transactions = RoundTransactions(request.aborted)
    for segment in request.segments:
        file = files.open_existing(
            f"{request.directory}/{checkpoints.segment_file(segment.base_offset, checkpoints.LOG)}"
        )
        for batch in read_batches(file, segment.size_bytes, segment.base_offset, request.read_bytes, pace):
            header = batch.header
            is_dirty = header.last_offset >= request.start_offset
            if is_dirty and not header.is_control and not transactions.is_aborted(header):
                yield batch


def _add(offsets: OffsetMap, batch: ReadBatch, request: MapKeys) -> int | None:
    """Add the keys of a batch. Return the offset of the first record whose key does not fit into the map, or None.

    The keys of a batch that cannot be decoded are skipped.
    """
    base_offset = batch.header.base_offset
    try:
        _, records = unpacked_records(batch.chunk, batch.start, batch.header, request.unpacked_bytes_max)
    except BrokenRecords:
        return None
    for record in records:
        offset, key = base_offset + record[4], record[5]
        if key is not None and offset >= request.start_offset and not offsets.put(key, offset):
            return offset
    return None
