"""The check of a segment's sparse indexes, `.index` and `.timeindex`, against its batches."""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas_jobs.planning.logs.batches import Batch
from barnabas_jobs.planning.logs.names import INDEX, TIME_INDEX
from barnabas_jobs.planning.logs.problems import INDEX_DAMAGED, TIME_INDEX_DAMAGED, Problem

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
    """An entry of an index: `place` is its position in the index file, and the other fields are its two numbers."""

    place: int
    first: int
    second: int


class BatchPlaces:
    """The positions of a segment's batches, and the largest timestamp up to each batch."""

    def __init__(self) -> None:
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


def used_part(data: bytes, kind: struct.Struct) -> bytes:
    """Return the index without the zeros at its end, which Kafka preallocates in the index of an active segment."""
    whole = len(data) // kind.size * kind.size
    used = len(data[:whole].rstrip(b"\0"))
    return data[: (used + kind.size - 1) // kind.size * kind.size]


def index_positions(data: bytes) -> list[int]:
    """Return the positions in the `.log` to which the entries of an offset index point."""
    return [each.second for each in _entries(data, OFFSET_ENTRY)]


def wrong_in_index(data: bytes, base_offset: int, batches: BatchPlaces) -> Iterator[Problem]:
    """Yield at most NAMED_MAX problems of an offset index: wrong entries, or a wrong size.

    An entry is correct if a batch begins at the entry's position, and if this batch's base offset is at most the
    entry's offset. The entry's offset may belong to a later batch: some followers write one entry for several batches.
    """
    found = _wrong_offsets(_entries(data, OFFSET_ENTRY), base_offset, batches)
    for place, offset, detail in islice(_with_size(data, OFFSET_ENTRY, found), NAMED_MAX):
        yield Problem(INDEX_DAMAGED, INDEX, place, offset, detail)


def wrong_in_time_index(data: bytes, base_offset: int, batches: BatchPlaces) -> Iterator[Problem]:
    """Yield at most NAMED_MAX problems of a time index: wrong entries, or a wrong size.

    An entry is correct if its timestamp is the largest of the segment's batches up to the one with the entry's offset.
    """
    found = _wrong_times(_entries(data, TIME_ENTRY), base_offset, batches)
    for place, offset, detail in islice(_with_size(data, TIME_ENTRY, found), NAMED_MAX):
        yield Problem(TIME_INDEX_DAMAGED, TIME_INDEX, place, offset, detail)


Wrong = tuple[int, int | None, str]
"""A wrong entry of an index: its position in the index file, its offset or None, and what is wrong."""


def _entries(data: bytes, kind: struct.Struct) -> list[Entry]:
    """Return the entries of an index, without an incomplete entry at the end."""
    whole = data[: len(data) // kind.size * kind.size]
    return [Entry(number * kind.size, *pair) for number, pair in enumerate(kind.iter_unpack(whole))]


def _with_size(data: bytes, kind: struct.Struct, found: Iterator[Wrong]) -> Iterator[Wrong]:
    if len(data) % kind.size:
        yield (
            len(data) // kind.size * kind.size,
            None,
            f"the size of {len(data)} bytes is not a multiple of {kind.size}",
        )
    yield from found


def _wrong_offsets(listed: Sequence[Entry], base_offset: int, batches: BatchPlaces) -> Iterator[Wrong]:
    before: Entry | None = None
    for entry in listed:
        place, relative, position = entry
        offset = base_offset + relative
        number = bisect_right(batches.positions, position) - 1
        if before is not None and (relative <= before.first or position <= before.second):
            yield (
                place,
                offset,
                (
                    f"the index entries are not in ascending order: offset {offset} at byte {position} comes after "
                    f"offset {base_offset + before.first} at byte {before.second}"
                ),
            )
        elif position >= batches.end_position or offset > batches.last_offset:
            end = f"the segment ends with offset {batches.last_offset} at byte {batches.end_position}"
            yield place, offset, f"the index entry points to offset {offset} at byte {position} of the log, but {end}"
        elif number < 0 or batches.positions[number] != position:
            yield place, offset, f"the index entry points to byte {position} of the log, but no batch begins there"
        elif offset < batches.base_offsets[number]:
            yield (
                place,
                offset,
                (
                    f"offset {offset} is below the batch at byte {position}, whose base offset is"
                    f" {batches.base_offsets[number]}"
                ),
            )
        before = entry


def _wrong_times(listed: Sequence[Entry], base_offset: int, batches: BatchPlaces) -> Iterator[Wrong]:
    before: Entry | None = None
    for entry in listed:
        place, timestamp_ms, relative = entry
        offset = base_offset + relative
        number = bisect_right(batches.base_offsets, offset) - 1
        if before is not None and (timestamp_ms <= before.first or relative < before.second):
            detail = (
                f"the index entries are not in ascending order: time {timestamp_ms} at offset {offset} comes after "
                f"time {before.first} at offset {base_offset + before.second}"
            )
            yield place, offset, detail
        elif relative < 0 or offset > batches.last_offset:
            yield place, offset, f"offset {offset} is beyond the segment, which ends with offset {batches.last_offset}"
        elif number >= 0 and batches.timestamps_ms[number] != timestamp_ms:
            largest_ms = batches.timestamps_ms[number]
            yield (
                place,
                offset,
                f"time {timestamp_ms} is wrong; the largest timestamp up to offset {offset} is {largest_ms}",
            )
        before = entry
