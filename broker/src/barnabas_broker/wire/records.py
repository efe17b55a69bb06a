"""The encoding and decoding of the records in a batch of message format v2.

The code is slow, so only coordinators, compaction, recompression and timestamp searches use it.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

import cramjam

from barnabas_broker.wire.framing import Buffer, encode_unsigned_varint
from barnabas_broker.wire.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LENGTH_OFFSET,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    BatchHeader,
    sealed_batch,
)


class Codec(IntEnum):
    """The codecs, with their numbers in the attributes of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BrokenCompression(ValueError):
    """The error for data that is invalid for the codec, or that is too large when it is decompressed."""


Decompressor = Callable[[Buffer, int], Buffer]
Compressor = Callable[[Buffer, int | None], bytes]

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES: Final = 32 * 1024
_INT32: Final = struct.Struct(">i")
_FIRST_BYTES: Final = 64 * 1024
_TOO_SMALL: Final = "failed to write whole buffer"
_GROWTH: Final = 16
"""The factor by which a decompression buffer grows if it is too small.

The first buffer is larger than the compressed data by the same factor, which is enough for most batches.
"""


def decompress(codec: int, data: Buffer, bytes_max: int) -> Buffer:
    """Return the decompressed data. Raises BrokenCompression if it is invalid, or larger than `bytes_max` bytes."""
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise BrokenCompression(f"codec {codec} is unknown; allowed are 0 to 4")
    try:
        return decompressor(data, bytes_max)
    except (cramjam.DecompressionError, struct.error) as error:
        raise BrokenCompression(
            f"{Codec(codec).name.lower()} data is invalid or decompresses to more than {bytes_max} bytes: {error}"
        ) from None


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data` in the format that Java clients read: snappy in xerial blocks, other codecs in their own frames.

    The level None is the default level of the codec.
    """
    return _COMPRESSORS[codec](data, level)


def _as_it_is(data: Buffer, _bytes_max: int) -> Buffer:
    return data


def _into(decompress_into: Callable[[Buffer, bytearray], int]) -> Decompressor:
    """Return a decompressor whose buffer grows up to the limit, so that small data needs little memory."""

    def decompressed(data: Buffer, bytes_max: int) -> Buffer:
        size = min(bytes_max, max(_FIRST_BYTES, len(data) * _GROWTH))
        while True:
            out = bytearray(size)
            try:
                return memoryview(out)[: decompress_into(data, out)]
            except cramjam.DecompressionError as error:
                if size == bytes_max or _TOO_SMALL not in str(error):
                    raise
            size = min(bytes_max, size * _GROWTH)

    return decompressed


def _snappy(data: Buffer, bytes_max: int) -> Buffer:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _raw_snappy(data, bytes_max)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(data):
        (length,) = _INT32.unpack_from(data, position)
        end = position + 4 + length
        if length < 0 or end > len(data):
            raise BrokenCompression(f"a snappy block has {length} bytes, but only {len(data) - position - 4} are left")
        out += _raw_snappy(data[position + 4 : end], bytes_max - len(out))
        position = end
    return out


def _raw_snappy(data: Buffer, bytes_max: int) -> Buffer:
    length = cramjam.snappy.decompress_raw_len(data)
    if length > bytes_max:
        raise BrokenCompression(f"the snappy data decompresses to {length} bytes; at most {bytes_max} are allowed")
    return bytes(cramjam.snappy.decompress_raw(data))


def _compress_xerial(data: Buffer, _level: int | None) -> bytes:
    view = memoryview(data)
    pieces = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        pieces += (_INT32.pack(len(block)), block)
    return b"".join(pieces)


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    """Compress to independent LZ4 blocks; Java clients refuse linked blocks, which are the library's default."""
    compressor = cramjam.lz4.Compressor(level=level, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


def _with_level(compressor: Callable[..., cramjam.Buffer]) -> Compressor:
    return lambda data, level: bytes(compressor(data) if level is None else compressor(data, level))


_DECOMPRESSORS: Final[Mapping[int, Decompressor]] = {
    Codec.NONE: _as_it_is,
    Codec.GZIP: _into(cramjam.gzip.decompress_into),
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _into(cramjam.lz4.decompress_into),
    Codec.ZSTD: _into(cramjam.zstd.decompress_into),
}
_COMPRESSORS: Final[Mapping[int, Compressor]] = {
    Codec.NONE: lambda data, _: bytes(data),
    Codec.GZIP: _with_level(cramjam.gzip.compress),
    Codec.SNAPPY: _compress_xerial,
    Codec.LZ4: _compress_lz4,
    Codec.ZSTD: _with_level(cramjam.zstd.compress),
}


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
