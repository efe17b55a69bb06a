"""The check of a segment: its batches, its transactions, and its sparse indexes `.index` and `.timeindex`."""

import struct
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from barnabas_jobs.planning.logs.batches import (
    BAD_MARKER,
    BAD_RECORDS,
    HEADER_BYTES,
    INDEX,
    INDEX_DAMAGED,
    LOG,
    OFFSET_GAP,
    TIME_INDEX,
    TIME_INDEX_DAMAGED,
    TRANSACTION_INDEX,
    TRANSACTION_INDEX_DAMAGED,
    Batch,
    Decompress,
    Problem,
    Read,
    SegmentExtent,
    Window,
    varint,
    walk,
    wrong_in_records,
)

OFFSET_ENTRY: Final = struct.Struct(">ii")
"""An entry of an offset index: an offset, and the position of a batch at or before that offset.

The offset is relative to the segment's base offset.
"""
TIME_ENTRY: Final = struct.Struct(">qi")
"""An entry of a time index: the largest timestamp (ms) up to the end of a batch, and an offset in that batch.

The offset is relative to the segment's base offset.
"""
NAMED_MAX: Final = 10
"""The largest number of wrong entries that are reported for each index file."""


class Entry(NamedTuple):
    """An entry of an index: its position in the index file, its offset, and its position in the log or timestamp."""

    place: int
    offset: int
    value: int


class BatchPlaces:
    """The positions of a segment's batches, and the largest timestamp up to each batch."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.positions = array("q")
        self.base_offsets = array("q")
        self.timestamps_ms = array("q")
        self.end_position = 0
        self.last_offset = -1

    def add(self, batch: Batch) -> None:
        """Record the positions, offsets and largest timestamp of the next batch of the segment."""
        before_ms = self.timestamps_ms[-1] if self.timestamps_ms else -1
        self.positions.append(batch.position)
        self.base_offsets.append(batch.base_offset)
        self.timestamps_ms.append(max(before_ms, batch.max_timestamp_ms))
        self.end_position = batch.position + batch.size_bytes
        self.last_offset = batch.last_offset


def _entries(data: bytes, kind: struct.Struct, base_offset: int) -> list[Entry]:
    """Return the entries of an index, without an incomplete entry at the end."""
    pairs = kind.iter_unpack(data[: len(data) // kind.size * kind.size])
    in_order = pairs if kind is OFFSET_ENTRY else ((relative, timestamp_ms) for timestamp_ms, relative in pairs)
    return [
        Entry(number * kind.size, base_offset + relative, value) for number, (relative, value) in enumerate(in_order)
    ]


Wrong = tuple[int, int | None, str]
"""A wrong entry of an index: its position in the index file, its offset or None, and what is wrong."""


def _problems(kind: str, suffix: str, found: Iterator[Wrong]) -> Iterator[Problem]:
    """Yield at most NAMED_MAX problems of an index file."""
    for place, offset, detail in islice(found, NAMED_MAX):
        yield Problem(kind, suffix, place, offset, detail)


def _wrong_size(data: bytes, kind: struct.Struct) -> Iterator[Wrong]:
    if over := len(data) % kind.size:
        yield len(data) - over, None, f"the size of {len(data)} bytes is not a multiple of {kind.size}"


def _wrong_in_index(data: bytes | None, kind: struct.Struct, batches: BatchPlaces) -> Iterator[Wrong]:
    """Yield what is wrong with an offset index or a time index: its size, or entries; or that it is missing."""
    name, wrong_entry = ("offset", _wrong_offset) if kind is OFFSET_ENTRY else ("time", _wrong_time)
    if data is None:
        yield 0, None, f"the {name} index is missing, although the segment has batches"
        return
    yield from _wrong_size(data, kind)
    listed = _entries(data, kind, batches.base_offset)
    for before, entry in zip((None, *listed), listed, strict=False):
        if wrong := wrong_entry(before, entry, batches):
            yield entry.place, entry.offset, wrong


def _wrong_offset(before: Entry | None, entry: Entry, batches: BatchPlaces) -> str | None:
    """Return what is wrong with an entry of an offset index, or None if it is correct.

    An entry is correct if a batch begins at the entry's position, and if this batch's base offset is at most the
    entry's offset. The entry's offset may belong to a later batch: some followers write one entry for several batches.
    """
    _, offset, position = entry
    number = bisect_right(batches.positions, position) - 1
    if before is not None and (offset <= before.offset or position <= before.value):
        return (
            f"the index entries are not in ascending order: offset {offset} at byte {position} comes after "
            f"offset {before.offset} at byte {before.value}"
        )
    if position >= batches.end_position or offset > batches.last_offset:
        end = f"the segment ends with offset {batches.last_offset} at byte {batches.end_position}"
        return f"the index entry points to offset {offset} at byte {position} of the log, but {end}"
    if number < 0 or batches.positions[number] != position:
        return f"the index entry points to byte {position} of the log, but no batch begins there"
    if offset < (first := batches.base_offsets[number]):
        return f"offset {offset} is below the batch at byte {position}, whose base offset is {first}"
    return None


def _wrong_time(before: Entry | None, entry: Entry, batches: BatchPlaces) -> str | None:
    """Return what is wrong with an entry of a time index, or None if it is correct.

    An entry is correct if its timestamp is the largest of the segment's batches up to the one with the entry's offset.
    """
    _, offset, timestamp_ms = entry
    number = bisect_right(batches.base_offsets, offset) - 1
    if before is not None and (timestamp_ms <= before.value or offset < before.offset):
        return (
            f"the index entries are not in ascending order: time {timestamp_ms} at offset {offset} comes after "
            f"time {before.value} at offset {before.offset}"
        )
    if not batches.base_offset <= offset <= batches.last_offset:
        return f"offset {offset} is beyond the segment, which ends with offset {batches.last_offset}"
    if number >= 0 and (largest_ms := batches.timestamps_ms[number]) != timestamp_ms:
        return f"time {timestamp_ms} is wrong; the largest timestamp up to offset {offset} is {largest_ms}"
    return None


TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
ABORT: Final = 0
COMMIT: Final = 1
ENTRY: Final = struct.Struct(">hqqqq")
"""An index entry: version, producer id, first offset of the transaction, offset of the marker, last stable offset."""
ENTRY_VERSION: Final = 0
_KEY: Final = struct.Struct(">hh")


class _Abort(NamedTuple):
    producer_id: int
    is_whole: bool
    """True if a batch of the transaction is in this segment, so that the segment's index must list the transaction."""


class SegmentTransactions:
    """The abort markers of a segment, by offset."""

    def __init__(self) -> None:
        self._writing: set[int] = set()
        self._aborts: dict[int, _Abort] = {}

    def add(self, batch: Batch, data: memoryview) -> str | None:
        """Add the next batch; return the problem if its marker is neither a commit nor an abort."""
        if not batch.attributes & TRANSACTIONAL_BIT:
            return None
        if not batch.attributes & CONTROL_BIT:
            self._writing.add(batch.producer_id)
            return None
        is_whole = batch.producer_id in self._writing
        self._writing.discard(batch.producer_id)
        if not batch.records:  # Compaction has removed all records of the batch.
            return None
        kind = _kind(data)
        if kind == ABORT:
            self._aborts[batch.base_offset] = _Abort(batch.producer_id, is_whole)
        return None if kind in (ABORT, COMMIT) else "a control batch of a transaction is neither a commit nor an abort"

    def wrong_in_index(self, data: bytes, *, is_active: bool) -> Iterator[Wrong]:
        """Yield what is wrong with the transaction index.

        In an active segment, missing entries are no problem: the broker may have added them after the index was read.
        """
        whole = len(data) // ENTRY.size * ENTRY.size
        if not is_active:
            yield from _wrong_size(data, ENTRY)
        listed, before = set(), -1
        for number, (version, producer_id, first, last, stable) in enumerate(ENTRY.iter_unpack(data[:whole])):
            wrong = self._wrong_entry(version, producer_id, first, last, stable)
            if last <= before:
                wrong = (
                    f"the index entries are not in ascending order: the marker at offset {last} comes after the marker "
                    f"at offset {before}"
                )
            if wrong is not None:
                yield number * ENTRY.size, last, wrong
            before = last
            listed.add(last)
        for offset, abort in self._aborts.items():
            if abort.is_whole and offset not in listed and not is_active:
                wrong = f"the transaction index lacks producer {abort.producer_id}'s abort marker at offset {offset}"
                yield whole, offset, wrong

    def _wrong_entry(self, version: int, producer_id: int, first: int, last: int, stable: int) -> str | None:
        abort = self._aborts.get(last)
        if version != ENTRY_VERSION:
            return f"version {version} is unknown; allowed: {ENTRY_VERSION}"
        if abort is None or abort.producer_id != producer_id:
            return f"the index has an entry, but producer {producer_id} has no abort marker at offset {last}"
        if not 0 <= first < last:
            return f"a transaction that was aborted at offset {last} begins at offset {first}"
        if stable > last + 1:
            return f"the last stable offset {stable} is above the marker at offset {last}"
        return None


def _kind(data: memoryview) -> int | None:
    """Return the type of a transaction marker, or None if the type cannot be read.

    The type is the second number in the key of the batch's first record.
    """
    try:
        _, position = varint(data, HEADER_BYTES)
        _, position = varint(data, position + 1)
        _, position = varint(data, position)
        length, position = varint(data, position)
        return None if length < _KEY.size else int(_KEY.unpack_from(data, position)[1])
    except (IndexError, struct.error):
        return None


PROBLEMS_NAMED_MAX: Final = 100
"""The largest number of reported problems of each kind in a `.log` file."""


class SegmentFiles(NamedTuple):
    """The files of a segment: a function `read` that reads the `.log` file, and the content of each index file.

    The content is None if the index file is missing. The index files were read before the `.log` file.
    """

    extent: SegmentExtent
    read: Read
    offset_index: bytes | None
    time_index: bytes | None
    transaction_index: bytes | None = None


def audited(files: SegmentFiles, decompress: Decompress | None) -> Iterator[Batch | Problem]:
    """Yield the batches and the problems of a segment.

    After PROBLEMS_NAMED_MAX problems of a kind, only the number of further ones is yielded. Records are checked only
    with `decompress`. Indexes are checked only if the batches have no problems except offset gaps.
    """
    counts, last = Counter[str](), dict[str, Problem]()
    for found in _found(files, decompress):
        if isinstance(found, Problem):
            last[found.kind] = found
            counts[found.kind] += 1
            if counts[found.kind] > PROBLEMS_NAMED_MAX:
                continue
        yield found
    for kind, problem in last.items():
        if (more := counts[kind] - PROBLEMS_NAMED_MAX) > 0:
            text = f"the file has {more} more problems of this kind; the position is that of the last one"
            yield problem._replace(detail=text)


def _found(files: SegmentFiles, decompress: Decompress | None) -> Iterator[Batch | Problem]:
    """Yield the batches and all problems of the `.log` file, and then at most NAMED_MAX problems of each index."""
    window, places, transactions = Window(files.read), BatchPlaces(files.extent.base_offset), SegmentTransactions()
    index, times = _used(files, files.offset_index, OFFSET_ENTRY), _used(files, files.time_index, TIME_ENTRY)
    positions = [each.value for each in _entries(index or b"", OFFSET_ENTRY, files.extent.base_offset)]
    is_sound = True
    for found in walk(window, files.extent, positions):
        yield found
        if isinstance(found, Problem):
            is_sound = is_sound and found.kind == OFFSET_GAP
            continue
        places.add(found)
        if found.crc == found.computed_crc:
            yield from _wrong_inside(window.at(found.position, found.size_bytes), found, transactions, decompress)
    if is_sound and places.positions:
        yield from _problems(INDEX_DAMAGED, INDEX, _wrong_in_index(index, OFFSET_ENTRY, places))
        yield from _problems(TIME_INDEX_DAMAGED, TIME_INDEX, _wrong_in_index(times, TIME_ENTRY, places))
    # After a compaction, the transaction index may list transactions whose markers have been removed.
    if is_sound and not files.extent.has_gaps:
        wrong = transactions.wrong_in_index(files.transaction_index or b"", is_active=files.extent.is_active)
        yield from _problems(TRANSACTION_INDEX_DAMAGED, TRANSACTION_INDEX, wrong)


def _wrong_inside(
    data: memoryview, batch: Batch, transactions: SegmentTransactions, decompress: Decompress | None
) -> Iterator[Problem]:
    """Yield the problems inside a batch whose CRC matches its bytes."""
    wrong_marker = transactions.add(batch, data)
    if wrong_marker:
        yield Problem(BAD_MARKER, LOG, batch.position, batch.base_offset, wrong_marker)
    wrong = wrong_in_records(data, batch, decompress) if decompress is not None else None
    if wrong:
        yield Problem(BAD_RECORDS, LOG, batch.position, batch.base_offset, wrong)


def _used(files: SegmentFiles, data: bytes | None, kind: struct.Struct) -> bytes | None:
    """Return the index without the zeros at its end, which Kafka preallocates in the index of an active segment."""
    if data is None or not files.extent.is_active:
        return data
    used = len(data[: len(data) // kind.size * kind.size].rstrip(b"\0"))
    return data[: (used + kind.size - 1) // kind.size * kind.size]
