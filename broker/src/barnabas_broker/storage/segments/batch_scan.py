"""The scan of a segment's file from batch to batch by their headers."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas_broker.storage.disk.files import LogFile
from barnabas_broker.storage.errors import InvalidBatch
from barnabas_broker.wire.record_batch import (
    HEADER_BYTES,
    LENGTH_OFFSET,
    BatchHeader,
    crc_matches,
    parse_header,
)

LOOKUP_CHUNK_BYTES: Final = 8192
"""The number of bytes read at once to find a batch between two index entries."""
SCAN_CHUNK_BYTES: Final = 1 << 20
"""The number of bytes read at once to scan a whole segment."""
NO_CRC: Final = 2**63 - 1
_LENGTH_MIN: Final = HEADER_BYTES - LENGTH_OFFSET


class FoundBatch(NamedTuple):
    """A batch header and the position of the batch in the segment's file."""

    position: int
    header: BatchHeader


def scan_batches(
    file: LogFile, start: int, end: int, offset_min: int, *, chunk_bytes: int, crc_from: int = NO_CRC
) -> Iterator[FoundBatch]:
    """Yield the batches between two byte positions; their offsets must rise from `offset_min`. Raises InvalidBatch.

    The CRC is checked for batches from the offset `crc_from` on.
    """
    chunk, chunk_start, position = memoryview(b""), start, start
    while position < end:
        place = position - chunk_start
        if place + HEADER_BYTES > len(chunk):
            chunk, chunk_start, place = _read(file, position, chunk_bytes, end), position, 0
        header = valid_header(chunk, place, position, end, offset_min)
        if header.base_offset >= crc_from:
            if place + header.size_bytes > len(chunk):
                chunk, place = _read(file, position, max(chunk_bytes, header.size_bytes), end), 0
                chunk_start = position
            if not crc_matches(chunk, place, header):
                raise InvalidBatch(
                    position, f"the CRC of the batch at offset {header.base_offset} does not match the batch's bytes"
                )
        yield FoundBatch(position, header)
        position += header.length + LENGTH_OFFSET
        offset_min = header.base_offset + header.last_offset_delta + 1


def _read(file: LogFile, position: int, length: int, end: int) -> memoryview:
    return memoryview(file.read_at(position, min(length, end - position)))


def valid_header(chunk: bytes | memoryview, place: int, position: int, end: int, offset_min: int) -> BatchHeader:
    """Return the header of the batch at byte `place` of `chunk`; this batch is at byte `position` of its segment.

    Raises InvalidBatch if the header is invalid, or if the batch extends beyond byte `end` of the segment.
    """
    if len(chunk) - place < HEADER_BYTES:
        raise InvalidBatch(
            position, f"{len(chunk) - place} bytes are left, but a batch header has {HEADER_BYTES}", torn=True
        )
    header = parse_header(chunk, place)
    if header.magic != 2:
        raise InvalidBatch(position, f"the magic of the batch is {header.magic}, not 2")
    if header.length < _LENGTH_MIN:
        raise InvalidBatch(position, f"the length of the batch is {header.length}, less than {_LENGTH_MIN}")
    if header.base_offset < offset_min or header.last_offset_delta < 0:
        raise InvalidBatch(
            position,
            f"the batch has base offset {header.base_offset} and last offset delta "
            f"{header.last_offset_delta}, but the lowest valid values are {offset_min} and 0",
        )
    if position + header.length + LENGTH_OFFSET > end:
        raise InvalidBatch(
            position, f"the length of the batch is {header.length}, but only {end - position} bytes are left", torn=True
        )
    return header
