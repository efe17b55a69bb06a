"""The batches of a `.log` file, read from their headers, in message format 2, which Kafka has written since 0.11."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from barnabas_jobs.planning.logs.names import LOG
from barnabas_jobs.planning.logs.problems import (
    BAD_CRC,
    BAD_HEADER,
    EPOCH_GOES_BACK,
    OFFSET_GAP,
    OFFSETS_GO_BACK,
    TORN_BATCH,
    Problem,
)

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_OFFSET: Final = 12
"""The size in bytes of the header fields base offset and batch length, which the batch length does not count."""
LENGTH_MIN: Final = HEADER_BYTES - LENGTH_OFFSET
CRC_START: Final = 21
MAGIC: Final = 2
CHUNK_BYTES: Final = 4 << 20

Read = Callable[[int, int], bytes]
"""A function that takes a position and a length, and returns these bytes of a file; at the end it returns fewer."""


class Batch(NamedTuple):
    """A batch in a `.log` file; `crc` is the CRC in the header, `computed_crc` the CRC of the bytes."""

    position: int
    base_offset: int
    last_offset: int
    epoch: int
    size_bytes: int
    crc: int
    computed_crc: int
    attributes: int
    max_timestamp_ms: int
    records: int
    producer_id: int


class SegmentExtent(NamedTuple):
    """The facts about a segment that are known before it is read.

    An incomplete batch at the end of an active segment is usually no damage: the batch is being written, or a crash
    tore it. But all batches below the recovery point `flushed_until` were flushed, so an incomplete batch there is
    damage. `has_gaps` is true if compaction may have removed offsets.
    """

    base_offset: int
    size_bytes: int
    is_active: bool
    flushed_until: int
    has_gaps: bool


class Window:
    """A reader of a file that reads ahead in chunks and keeps the last chunk in memory."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._start = 0
        self._chunk = memoryview(b"")

    def at(self, position: int, length: int) -> memoryview:
        """Return `length` bytes from `position` on, fewer at the end of the file."""
        place = position - self._start
        if place < 0 or place + length > len(self._chunk):
            self._chunk = memoryview(self._read(position, max(length, CHUNK_BYTES)))
            self._start, place = position, 0
        return self._chunk[place : place + length]


def walk(window: Window, extent: SegmentExtent, index_positions: Sequence[int]) -> Iterator[Batch | Problem]:
    """Yield the batches and their problems.

    An incomplete batch at the end is not reported if it can be an unfinished write; see SegmentExtent. After damage,
    continue at the next position in `index_positions`, or end if there is none.
    """
    position, next_offset, epoch = 0, extent.base_offset, -1
    while position < extent.size_bytes:
        found = _batch_at(window, position, extent, next_offset)
        if isinstance(found, Problem):
            known = next((each for each in index_positions if position < each < extent.size_bytes), None)
            if known is not None or found.kind != TORN_BATCH or not _may_be_torn(extent, next_offset):
                yield found
            if known is None:
                return
            position, next_offset, epoch = known, -1, -1
            continue
        yield found
        yield from _wrong_with(found, next_offset, epoch, has_gaps=extent.has_gaps or next_offset < 0)
        position += found.size_bytes
        next_offset, epoch = found.last_offset + 1, found.epoch


def _batch_at(window: Window, position: int, extent: SegmentExtent, next_offset: int) -> Batch | Problem:
    left = extent.size_bytes - position
    head = window.at(position, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        return _torn(
            position, extent, next_offset, f"{left} bytes are left, but a batch header has {HEADER_BYTES} bytes"
        )
    base_offset, length, epoch, magic, crc, attributes, delta, _, max_timestamp_ms, producer_id, _, _, records = (
        HEADER.unpack(head)
    )
    if magic != MAGIC or length < LENGTH_MIN or delta < 0 or base_offset < 0:
        if not any(head) and _is_zero(window, position, extent.size_bytes):
            return _torn(position, extent, next_offset, f"the last {left} bytes of the file are zero")
        detail = (
            f"the batch header has magic {magic} (allowed: 2), length {length} (allowed: 49 or more), base offset "
            f"{base_offset} (allowed: 0 or more) and last offset delta {delta} (allowed: 0 or more); {left} bytes are "
            "left in the file"
        )
        return Problem(BAD_HEADER, LOG, position, None, detail)
    size_bytes = LENGTH_OFFSET + length
    data = window.at(position, size_bytes) if size_bytes <= left else b""
    if len(data) < size_bytes:
        return _torn(position, extent, next_offset, f"the batch has {size_bytes} bytes, but {left} bytes are left")
    computed_crc = crc32c(data[CRC_START:])
    last_offset = base_offset + delta
    return Batch(
        position,
        base_offset,
        last_offset,
        epoch,
        size_bytes,
        crc,
        computed_crc,
        attributes,
        max_timestamp_ms,
        records,
        producer_id,
    )


def _torn(position: int, extent: SegmentExtent, next_offset: int, detail: str) -> Problem:
    is_flushed = extent.is_active and not _may_be_torn(extent, next_offset)
    why = f", below the recovery point {extent.flushed_until}" if is_flushed else ""
    return Problem(TORN_BATCH, LOG, position, max(next_offset, 0), detail + why)


def _may_be_torn(extent: SegmentExtent, next_offset: int) -> bool:
    """True if an incomplete batch at `next_offset` can be the effect of a crash instead of damage.

    A crash can leave an incomplete batch only in the active segment, at or above the recovery point.
    """
    return extent.is_active and next_offset >= extent.flushed_until


def _is_zero(window: Window, position: int, end: int) -> bool:
    """True if the rest of the file is zeros, as after a power cut or in a preallocated file."""
    return not any(any(window.at(at, CHUNK_BYTES)) for at in range(position, end, CHUNK_BYTES))


def _wrong_with(batch: Batch, next_offset: int, epoch: int, *, has_gaps: bool) -> Iterator[Problem]:
    offset = batch.base_offset
    if batch.computed_crc != batch.crc:
        detail = f"the header has the CRC {batch.crc:08x}, but the bytes have the CRC {batch.computed_crc:08x}"
        yield Problem(BAD_CRC, LOG, batch.position, offset, detail)
    if offset < next_offset:
        yield Problem(OFFSETS_GO_BACK, LOG, batch.position, offset, f"the base offset should be {next_offset} or more")
    if offset > next_offset and not has_gaps:
        yield Problem(
            OFFSET_GAP, LOG, batch.position, offset, f"{offset - next_offset} offsets are missing from {next_offset} on"
        )
    if batch.epoch < epoch:
        yield Problem(
            EPOCH_GOES_BACK,
            LOG,
            batch.position,
            offset,
            f"the leader epoch {batch.epoch} is lower than epoch {epoch} of the previous batch",
        )
