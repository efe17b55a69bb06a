"""The parsing of a batch's records, limited to the fields that compaction needs."""

from collections.abc import Callable
from typing import Final

from barnabas_broker.wire.record_batch import HEADER_BYTES, BatchHeader
from barnabas_broker.wire.records import BrokenCompression, BrokenRecords, Codec, decompress, read_varint

RECORDS_BYTES_MAX: Final = 100 * 1024 * 1024
"""The largest decompressed size of a batch, equal to the default of socket.request.max.bytes."""

RECORDS_MAX: Final = 1_000_000
"""The largest number of records in a batch.

RECORDS_BYTES_MAX alone would allow so many tiny records that their parsing would need gigabytes of memory.
"""

WalkedRecord = tuple[int, int, int, int, int, bytes | None, bool]
"""A record as a tuple, which is cheaper to create than an object.

The fields are its start, the position after its timestamp and its end (in the decompressed records), the timestamp
delta, the offset delta, the key, and whether the record has a value.
"""

_NULL: Final = 1
"""The varint for the length of a null value (-1)."""


def unpacked_records(batch: bytes, start: int, header: BatchHeader, bytes_max: int) -> tuple[bytes, list[WalkedRecord]]:
    """Return the decompressed bytes of the batch at byte `start`, and the parsed records.

    Raises BrokenRecords if the records are invalid.
    """
    if header.compression != Codec.NONE and not header.record_count:
        return b"", []
    data, position, end = unpacked(batch, start, header, bytes_max)
    return data, walk_records(data, position, end, header.record_count)


def unpacked(batch: bytes, start: int, header: BatchHeader, bytes_max: int) -> tuple[bytes, int, int]:
    """Decompress the batch at byte `start`; return a buffer, and where in the buffer the records begin and end.

    Raises BrokenRecords if the records cannot be decompressed.
    """
    end = start + header.size_bytes
    if header.compression == Codec.NONE:
        return batch, start + HEADER_BYTES, end
    try:
        data = bytes(decompress(header.compression, memoryview(batch)[start + HEADER_BYTES : end], bytes_max))
    except BrokenCompression as error:
        raise BrokenRecords(f"the batch at offset {header.base_offset} cannot be decompressed: {error}") from None
    return data, 0, len(data)


def walk_records(data: bytes, position: int, end: int, count: int) -> list[WalkedRecord]:
    """Return the `count` parsed records in `data[position:end]`. Raises BrokenRecords if the records are invalid."""
    if count > RECORDS_MAX:
        raise BrokenRecords(f"the batch has {count} records; at most {RECORDS_MAX} are allowed")
    walked: list[WalkedRecord] = []
    previous_delta = -1
    add: Callable[[WalkedRecord], None] = walked.append
    try:
        while position < end:
            start = position
            length, position = read_varint(data, position)
            record_end = position + length
            timestamp_delta, rest = read_varint(data, position + 1)
            byte = data[rest]
            position = rest + 1
            offset_delta = byte >> 1
            if byte > 0x7F or byte & 1:
                offset_delta, position = read_varint(data, rest)
            key_length, position = read_varint(data, position)
            key = None
            if key_length >= 0:
                key_end = position + key_length
                key = data[position:key_end]
                position = key_end
            if position >= record_end or offset_delta <= previous_delta:
                raise BrokenRecords(
                    f"record {len(walked)} has an offset out of order, or a key that is longer than the record"
                )
            add((start, rest, record_end, timestamp_delta, offset_delta, key, data[position] != _NULL))
            position, previous_delta = record_end, offset_delta
    except IndexError:
        raise BrokenRecords(f"record {len(walked)} ends after the end of the batch") from None
    if position != end or len(walked) != count:
        raise BrokenRecords(
            f"the batch header announces {count} records, but {len(walked)} records were found, which end "
            f"{position - end} bytes after the end of the batch"
        )
    return walked
