"""The check of the records in one batch against its header."""

import struct
from collections.abc import Callable
from typing import Final

from barnabas_jobs.planning.logs.batches import HEADER_BYTES, Batch

CODECS: Final = ("", "gzip", "snappy", "lz4", "zstd")
COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
DELETE_HORIZON_BIT: Final = 0x40
XERIAL: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES: Final = 16
TIMESTAMP_MIN_MS: Final = -(2**63)
_LENGTH: Final = struct.Struct(">i")
_BASE_TIMESTAMP: Final = struct.Struct(">q")
_BASE_TIMESTAMP_PLACE: Final = 27

Decompress = Callable[[str, bytes], bytes]
"""A function from codec and bytes to decompressed bytes, which raises ValueError if they are damaged."""


def wrong_in_records(data: memoryview, batch: Batch, decompress: Decompress) -> str | None:
    """Return the problem with the records of a batch in words, or None if they are sound."""
    try:
        records = _decompressed(bytes(data[HEADER_BYTES:]), batch.attributes & COMPRESSION_MASK, decompress)
        (base_timestamp_ms,) = _BASE_TIMESTAMP.unpack_from(data, _BASE_TIMESTAMP_PLACE)
        return _wrong(records, batch, base_timestamp_ms)
    except (ValueError, IndexError, struct.error) as error:
        return f"the records cannot be decoded: {error}"


def _decompressed(data: bytes, codec: int, decompress: Decompress) -> bytes:
    if codec >= len(CODECS):
        raise ValueError(f"codec {codec} is unknown; allowed: 0 to {len(CODECS) - 1}")
    if not codec:
        return data
    if data.startswith(XERIAL):  # Java clients write snappy in xerial's block format.
        return b"".join(decompress("snappy", block) for block in _xerial_blocks(data))
    return decompress(CODECS[codec], data)


def _xerial_blocks(data: bytes) -> list[bytes]:
    blocks, position = [], XERIAL_HEADER_BYTES
    while position < len(data):
        (length,) = _LENGTH.unpack_from(data, position)
        position += _LENGTH.size
        blocks.append(data[position : position + length])
        position += length
    return blocks


def _wrong(records: bytes, batch: Batch, base_timestamp_ms: int) -> str | None:
    """Return the first length, offset, count or timestamp that contradicts the header; keys and values are skipped."""
    position, delta_before, newest_ms, count = 0, -1, TIMESTAMP_MIN_MS, 0
    while position < len(records):
        length, position = varint(records, position)
        end = position + length
        if length <= 0 or end > len(records):
            return f"record {count} has {length} bytes, but {len(records) - position} bytes are left"
        time_delta_ms, position = varint(records, position + 1)
        delta, position = varint(records, position)
        if not delta_before < delta <= batch.last_offset - batch.base_offset:
            return (
                f"record {count} has the offset {batch.base_offset}+{delta}, but the previous record has "
                f"+{delta_before}"
            )
        newest_ms = max(newest_ms, base_timestamp_ms + time_delta_ms)
        delta_before, position, count = delta, end, count + 1
    if count != batch.records:
        return f"the batch has {count} records, but the header says {batch.records}"
    own_times = not batch.attributes & (LOG_APPEND_TIME_BIT | DELETE_HORIZON_BIT)
    if own_times and newest_ms > batch.max_timestamp_ms:
        return f"the newest timestamp is {newest_ms}, but the header says {batch.max_timestamp_ms}"
    return None


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return the zigzag varint at a position, and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
