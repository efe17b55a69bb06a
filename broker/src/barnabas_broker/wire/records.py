"""The records inside a batch of message format v2: decoded and encoded one by one.

Only what must look inside does: the offsets topic, compaction, recompression, timestamp search. Never the hot path.
"""

import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from barnabas_broker.wire.compression import BrokenCompression, Buffer, compress, decompress
from barnabas_broker.wire.record_batch import HEADER_BYTES, LENGTH_OFFSET, MAGIC, BatchHeader, sealed_batch

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1


class Header(NamedTuple):
    """A record header; the value may be null."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record; its offset is the batch's base offset and `offset_delta`."""

    offset_delta: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header] = ()


class BrokenRecords(ValueError):
    """The bytes behind a batch's header are not the records that the header tells of."""


def decode_batch(buffer: Buffer, position: int, header: BatchHeader, bytes_max: int) -> list[Record]:
    """The records of the batch at `position`, at most `bytes_max` bytes of them uncompressed. Raises BrokenRecords."""
    end = position + LENGTH_OFFSET + header.length
    try:
        data = decompress(header.compression, memoryview(buffer)[position + HEADER_BYTES : end], bytes_max)
        return _decode_records(data, header)
    except (BrokenCompression, IndexError, struct.error, UnicodeDecodeError) as error:
        raise BrokenRecords(f"batch at offset {header.base_offset}: {error}") from None


def _decode_records(data: Buffer, header: BatchHeader) -> list[Record]:
    reader = _Reader(bytes(data))
    append_time = bool(header.attributes & 0x08)
    records: list[Record] = []
    for _ in range(header.record_count):
        length = reader.varint()
        end = reader.position + length
        reader.position += 1  # Attributes, of which v2 uses none.
        timestamp_ms = header.base_timestamp_ms + reader.varint()
        offset_delta = reader.varint()
        key, value = reader.nullable_bytes(), reader.nullable_bytes()
        headers = reader.headers()
        if reader.position != end:
            raise BrokenRecords(f"record {len(records)} has {length} bytes, its fields end elsewhere")
        if append_time:
            timestamp_ms = header.max_timestamp_ms
        records.append(Record(offset_delta, timestamp_ms, key, value, headers))
    if reader.position != len(data):
        raise BrokenRecords(f"{len(data) - reader.position} bytes behind the last record")
    return records


class _Reader:
    """Reads varints and what they prefix. IndexError at the end."""

    __slots__ = ("_data", "position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def varint(self) -> int:
        """A zigzag varint of up to 64 bits."""
        data, position = self._data, self.position
        byte = data[position]
        position += 1
        raw, shift = byte & 0x7F, 7
        while byte > 0x7F:
            if shift > 63:
                raise BrokenRecords("a varint of more than 10 bytes")
            byte = data[position]
            position += 1
            raw |= (byte & 0x7F) << shift
            shift += 7
        self.position = position
        return (raw >> 1) ^ -(raw & 1)

    def nullable_bytes(self) -> bytes | None:
        """A length, -1 for null, and as many bytes."""
        length = self.varint()
        if length < 0:
            return None
        end = self.position + length
        if end > len(self._data):
            raise BrokenRecords(f"{length} bytes end behind the batch")
        value = self._data[self.position : end]
        self.position = end
        return value

    def headers(self) -> Sequence[Header]:
        """The headers of a record."""
        count = self.varint()
        if not 0 <= count <= len(self._data) - self.position:
            raise BrokenRecords(f"{count} headers")
        return [self._header() for _ in range(count)] if count else ()

    def _header(self) -> Header:
        key = self.nullable_bytes()
        if key is None:
            raise BrokenRecords("a header without a key")
        return Header(key.decode(), self.nullable_bytes())


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    attributes: int = 0,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    base_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    last_offset_delta: int | None = None,
) -> bytearray:
    """A whole batch with its CRC; the codec is in `attributes`. What is None comes from the records."""
    first_ms = records[0].timestamp_ms if base_timestamp_ms is None else base_timestamp_ms
    last_ms = max(record.timestamp_ms for record in records) if max_timestamp_ms is None else max_timestamp_ms
    last_delta = records[-1].offset_delta if last_offset_delta is None else last_offset_delta
    body = compress(attributes & 0x07, b"".join(_encode_records(records, first_ms)), compression_level)
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
            fields += (_prefixed(key.encode()), _prefixed(value))
        body = b"".join(fields)
        yield encode_varint(len(body))
        yield body


def _prefixed(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def encode_varint(value: int) -> bytes:
    """A zigzag varint of a number of up to 64 bits."""
    raw = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
