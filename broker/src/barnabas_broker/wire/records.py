"""The encoding and decoding of the records in a batch of message format v2.

The code is slow, so only coordinators, compaction, recompression and timestamp searches use it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_broker.wire.framing import Buffer, encode_unsigned_varint
from barnabas_broker.wire.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_OFFSET,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    BatchHeader,
    BrokenCompression,
    Codec,
    sealed_batch,
)


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """Return the decompressed data. Raises BrokenCompression if it is invalid, or larger than `bytes_max` bytes."""
    if codec == Codec.NONE:
        return data
    from barnabas_broker.wire import compression  # It takes 2 MB, and most records stay as their producer sent them.

    return compression.decompress(codec, data, bytes_max)


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in the format that Java clients read. The level None is the default level of the codec."""
    if codec == Codec.NONE:
        return bytes(data)
    from barnabas_broker.wire import compression

    return compression.compress(codec, data, level)


NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
VARINT_SHIFT_MAX: Final = 63
UINT64_MAX: Final = 2**64 - 1
HEADER_KEY_ERRORS: Final = "surrogateescape"
"""The error handler that keeps the bytes of header keys that are not UTF-8."""


class Header(NamedTuple):
    """A record header; the value may be null."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """A record; its offset is the base offset of the batch plus `offset_delta`."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class BrokenRecords(ValueError):
    """The error for records that do not match the header of their batch."""


def decode_batch(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> list[Record]:
    """Return the records of a batch. Raises BrokenRecords if they are invalid or exceed `bytes_max` uncompressed."""
    return list(iterate_records(buffer, position, header, bytes_max))


def iterate_records(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> Iterator[Record]:
    """Yield the records one by one, because 100 MB can hold 14 million records. Raises BrokenRecords."""
    data = bytes(_records_data(buffer, position, header, bytes_max))
    try:
        yield from _decode_records(data, header)
    except IndexError as error:
        raise BrokenRecords(f"the batch at offset {header.base_offset} cannot be read: {error}") from None


def first_record_since(
    batch: Buffer, header: BatchHeader, timestamp_ms: int, offset_delta_min: int, bytes_max: int
) -> tuple[int, int] | None:
    """Return timestamp and offset delta of the first record from `offset_delta_min` on with at least `timestamp_ms`.

    Return None if there is no such record. Keys, values, headers, and later records are not checked. Raises
    BrokenRecords.
    """
    data = bytes(_records_data(batch, 0, header, bytes_max))
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME_BIT else None
    position = 0
    try:
        for number in range(header.record_count):
            length, start = read_varint(data, position)
            position = start + length
            time_delta, rest = read_varint(data, start + 1)
            offset_delta, rest = read_varint(data, rest)
            if not rest < position <= len(data) or not 0 <= offset_delta <= header.last_offset_delta:
                raise BrokenRecords(f"the fields of record {number} do not match its length of {length} bytes")
            if offset_delta >= offset_delta_min:
                time_ms = _as_int64(header.base_timestamp_ms + time_delta) if append_time_ms is None else append_time_ms
                if time_ms >= timestamp_ms:
                    return time_ms, offset_delta
    except IndexError as error:
        raise BrokenRecords(f"the batch at offset {header.base_offset} cannot be read: {error}") from None
    return None


def _records_data(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> Buffer:
    """Return the decompressed records of a batch: the bytes after the batch header."""
    end = position + LENGTH_OFFSET + header.length
    try:
        return decompress(header.compression, memoryview(buffer)[position + HEADER_BYTES : end], bytes_max)
    except BrokenCompression as error:
        raise BrokenRecords(f"the batch at offset {header.base_offset} cannot be read: {error}") from None


def _decode_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    reader = _Reader(data)
    append_time_ms = header.max_timestamp_ms if header.attributes & LOG_APPEND_TIME_BIT else None
    for number in range(header.record_count):
        length = reader.varint()
        end = reader.position + length
        reader.position += 1  # Skip the attributes, which are unused.
        timestamp_ms = _as_int64(header.base_timestamp_ms + reader.varint())
        offset_delta = reader.varint()
        if not 0 <= offset_delta <= header.last_offset_delta:
            raise BrokenRecords(
                f"record {number} has offset delta {offset_delta}; 0 to {header.last_offset_delta} are allowed"
            )
        key, value = reader.nullable_bytes(), reader.nullable_bytes()
        headers = reader.headers()
        if reader.position != end:
            raise BrokenRecords(f"the fields of record {number} do not match its length of {length} bytes")
        yield Record(offset_delta, timestamp_ms if append_time_ms is None else append_time_ms, key, value, headers)
    if reader.position != len(data):
        raise BrokenRecords(f"there are {len(data) - reader.position} bytes after the last record")


def _as_int64(value: int) -> int:
    """Return the number as a Java long, which overflows at 64 bits."""
    return value if -(2**63) <= value < 2**63 else (value + 2**63) % 2**64 - 2**63


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return a zigzag varint of up to 64 bits, and the position after it. Raises BrokenRecords and IndexError."""
    byte = data[position]
    raw, shift = byte & 0x7F, 7
    while byte > 0x7F:
        if shift > VARINT_SHIFT_MAX:
            raise BrokenRecords("a varint has more than 10 bytes")
        position += 1
        byte = data[position]
        raw |= (byte & 0x7F) << shift
        shift += 7
    raw &= UINT64_MAX
    return (raw >> 1) ^ -(raw & 1), position + 1


class _Reader:
    """A reader of varints, and of bytes after their length. Its methods raise IndexError at the end of the data."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def varint(self) -> int:
        value, self.position = read_varint(self._data, self.position)
        return value

    def nullable_bytes(self) -> bytes | None:
        """Read a length, and return that many bytes after it; None if the length is negative."""
        length = self.varint()
        if length < 0:
            return None
        end = self.position + length
        if end > len(self._data):
            raise BrokenRecords(f"a field of {length} bytes is longer than the rest of the batch")
        value = self._data[self.position : end]
        self.position = end
        return value

    def headers(self) -> Sequence[Header]:
        count = self.varint()
        if not 0 <= count <= len(self._data) - self.position:
            raise BrokenRecords(f"a record has {count} headers, which do not fit into the batch")
        return [self._header() for _ in range(count)] if count else ()

    def _header(self) -> Header:
        key = self.nullable_bytes()
        if key is None:
            raise BrokenRecords("a record header has no key")
        return Header(key.decode(errors=HEADER_KEY_ERRORS), self.nullable_bytes())


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Return a batch with its CRC, compressed by the codec in `attributes`.

    Timestamps and the last offset delta are taken from the records if the arguments are None.
    """
    first_ms = records[0].timestamp_ms if base_timestamp_ms is None else base_timestamp_ms
    last_ms = max(record.timestamp_ms for record in records) if max_timestamp_ms is None else max_timestamp_ms
    last_delta = records[-1].offset_delta if last_offset_delta is None else last_offset_delta
    body = compress(attributes & COMPRESSION_MASK, b"".join(_encode_records(records, first_ms)))
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last_delta,
        first_ms,
        last_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return sealed_batch(header, body)


def _encode_records(records: Iterable[Record], base_timestamp_ms: int) -> Iterable[bytes]:
    for record in records:
        fields = [
            b"\0",
            encode_varint(record.timestamp_ms - base_timestamp_ms),
            encode_varint(record.offset_delta),
            _prefixed(record.key),
            _prefixed(record.value),
            encode_varint(len(record.headers)),
        ]
        for key, value in record.headers:
            fields += (_prefixed(key.encode(errors=HEADER_KEY_ERRORS)), _prefixed(value))
        body = b"".join(fields)
        yield encode_varint(len(body))
        yield body


def _prefixed(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def encode_varint(value: int) -> bytes:
    """Return the zigzag varint of a number of up to 64 bits."""
    return encode_unsigned_varint((value << 1) ^ (value >> 63))
