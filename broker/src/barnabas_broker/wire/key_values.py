"""The keys and values of record batches, for readers of a whole log.

The code avoids calls, because a hundred megabytes may hold a million records. Timestamps, offsets and headers are
skipped.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_broker.wire.framing import Buffer
from barnabas_broker.wire.record_batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LENGTH_OFFSET,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BrokenCompression,
    parse_header,
)
from barnabas_broker.wire.records import BrokenRecords, Record, decode_batch, decompress, encode_batch, read_varint

_KEY: Final = struct.Struct(">hh")
"""The key of a marker's control record: version 0, then 0 for an abort or 1 for a commit."""
_VALUE: Final = struct.Struct(">hi")
"""The value of a marker's control record: version 0, then the coordinator epoch. Later versions only add fields."""
_ABORT: Final = 0
_COMMIT: Final = 1
_BATCH_BYTES_MAX: Final = 1 << 16


class ProducerEpoch(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


class Marker(NamedTuple):
    """The marker that ends a transaction of a producer."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


def encode_marker(marker: Marker, now_ms: int) -> bytearray:
    """Return the control batch of a marker."""
    key = _KEY.pack(0, _COMMIT if marker.is_commit else _ABORT)
    return encode_batch(
        [Record(0, now_ms, key, _VALUE.pack(0, marker.coordinator_epoch))],
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
    )


def decode_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """Return the transaction marker in a control batch.

    Return None if compaction has removed the marker, or the batch has another control record or is invalid.
    """
    if header.producer_id < 0 or not header.record_count:
        return None
    try:
        record = decode_batch(batch, 0, header, _BATCH_BYTES_MAX)[0]
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (_ABORT, _COMMIT):
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except (BrokenRecords, struct.error):
        return None
    return Marker(header.producer_id, header.producer_epoch, coordinator_epoch, kind == _COMMIT)


KeyValues = Mapping[bytes, bytes | None]
"""The last value of each key; None is a tombstone."""


class TransactionalKeyValues(NamedTuple):
    """The records of an open transaction, which take effect when the transaction commits."""

    producer_id: int
    key_values: KeyValues


class KeyValueList:
    """The records in the order of the log, also those whose key comes again; `KeyValueReader` fills it."""

    __slots__ = ("records",)

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []

    def __len__(self) -> int:
        return len(self.records)

    def __setitem__(self, key: bytes, value: bytes | None) -> None:
        self.records.append((key, value))


NewestSlice = KeyValues | TransactionalKeyValues | Marker
KeyValueSlice = NewestSlice | KeyValueList

_HEADER: Final = struct.Struct(">qi4xb4xhi30xi")
"""The fields that are read from the batch header: base offset, length, magic, attributes, last offset delta, record
count."""
_RECORDS_AT_ONCE: Final = 1_000
"""The number of records after which KeyValueReader ends a slice; 1,000 records take about a millisecond to read."""

_Found = dict[bytes, bytes | None] | KeyValueList


class KeyValueReader:
    """The reader of the complete batches in `data`, in order; an incomplete batch at the end is ignored."""

    def __init__(self, data: bytes, batch_bytes_max: int, *, keeps_all: bool = False) -> None:
        """Create a reader of `data`; a batch that decompresses to more than `batch_bytes_max` is invalid.

        With `keeps_all`, slices are of the type KeyValueList.
        """
        self.next_offset: int | None = None
        """The offset after the last batch that was read; None without a complete batch."""
        self._data = data
        self._batch_bytes_max = batch_bytes_max
        self._new: Callable[[], _Found] = KeyValueList if keeps_all else dict

    def slices(self) -> Iterator[KeyValueSlice]:
        """Yield the records in slices that take about a millisecond each. Raises BrokenRecords.

        For each key, a slice has only the last value among its records. Records without a key are left out.
        Transactional records and markers are in separate slices.
        """
        data, position = self._data, 0
        found = self._new()
        records = 0
        while len(data) - position >= HEADER_BYTES:
            base_offset, length, magic, attributes, last_delta, count = _HEADER.unpack_from(data, position)
            if magic != MAGIC or length < HEADER_BYTES - LENGTH_OFFSET:
                raise BrokenRecords(
                    f"the batch at offset {base_offset} has magic {magic} and length {length}, "
                    f"but magic 2 and a length of at least 49 are needed"
                )
            start, position = position + HEADER_BYTES, position + LENGTH_OFFSET + length
            if position > len(data):
                break
            if last_delta < 0 or base_offset < (self.next_offset or 0):  # Offsets must increase.
                raise BrokenRecords(
                    f"the batch at offset {base_offset} has last offset delta {last_delta}; the delta must not be "
                    f"negative, and the batch must not begin before the next expected offset, {self.next_offset}"
                )
            if attributes & (CONTROL_BIT | TRANSACTIONAL_BIT):
                yield found
                found, records = self._new(), 0
                yield from self._of_transaction(start, position, attributes, count, base_offset)
            elif not attributes & COMPRESSION_MASK and 0 < count <= _RECORDS_AT_ONCE:
                _read_batch(data, start, position, count, base_offset, found)
                records += count
            else:
                yield found
                found, records = self._new(), 0
                yield from self._large_batch(start, position, attributes & COMPRESSION_MASK, count, base_offset)
            if records >= _RECORDS_AT_ONCE:
                yield found
                found, records = self._new(), 0
            self.next_offset = base_offset + last_delta + 1
        yield found

    def _of_transaction(
        self, start: int, end: int, attributes: int, count: int, base_offset: int
    ) -> Iterator[TransactionalKeyValues | Marker]:
        header = parse_header(self._data, start - HEADER_BYTES)
        if attributes & CONTROL_BIT:
            marker = decode_marker(memoryview(self._data)[start - HEADER_BYTES : end], header)
            if marker is not None:
                yield marker
            return
        for found in self._large_batch(start, end, attributes & COMPRESSION_MASK, count, base_offset):
            if isinstance(found, dict):
                yield TransactionalKeyValues(header.producer_id, found)

    def _large_batch(self, start: int, end: int, codec: int, count: int, base_offset: int) -> Iterator[_Found]:
        """Yield the keys and values of a compressed or large batch, in mappings of up to _RECORDS_AT_ONCE records."""
        data = self._data
        try:
            if codec:
                data = bytes(decompress(codec, memoryview(data)[start:end], self._batch_bytes_max))
                start, end = 0, len(data)
            while count > _RECORDS_AT_ONCE:
                found = self._new()
                start = _read_records(data, start, end, _RECORDS_AT_ONCE, found)
                count -= _RECORDS_AT_ONCE
                yield found
        except (BrokenRecords, BrokenCompression, IndexError) as error:
            raise BrokenRecords(f"the batch at offset {base_offset} cannot be read: {error}") from None
        found = self._new()
        _read_batch(data, start, end, count, base_offset, found)
        yield found


def _read_batch(data: bytes, start: int, end: int, count: int, base_offset: int, found: _Found) -> None:
    """Read the remaining `count` records of a batch into `found`, and check that no bytes follow them."""
    try:
        behind = _read_records(data, start, end, count, found)
    except (BrokenRecords, IndexError) as error:
        raise BrokenRecords(f"the batch at offset {base_offset} cannot be read: {error}") from None
    if behind != end:
        raise BrokenRecords(f"the batch at offset {base_offset} has {end - behind} bytes after the last record")


def _read_records(data: bytes, position: int, batch_end: int, count: int, found: _Found) -> int:
    """Read the next `count` records into `found`, and return the position after them.

    Raises IndexError at the end of the data.
    """
    for _ in range(count):
        # Most varints have one byte, which is read without a call.
        length = data[position]
        if length < 0x80 and not length & 1:
            position += 1
            end = position + (length >> 1)
        else:
            length, position = read_varint(data, position)
            end = position + length
        if length < 0 or end > batch_end:
            raise BrokenRecords(f"the record length {length} is negative or exceeds the rest of the batch")
        position += 1  # Skip the attributes, which are unused.
        while data[position] > 0x7F:  # Skip the timestamp delta and the offset delta.
            position += 1
        position += 1
        while data[position] > 0x7F:
            position += 1
        position += 1
        length = data[position]
        if length < 0x80 and not length & 1:
            length >>= 1
            position += 1
        else:
            length, position = read_varint(data, position)
        key_at, has_key = position, length >= 0
        key_end = position = position + length if has_key else position
        length = data[position]
        if length < 0x80 and not length & 1:
            length >>= 1
            position += 1
        else:
            length, position = read_varint(data, position)
        value_end = position + length if length >= 0 else position
        if value_end > end:
            raise BrokenRecords(f"the key and value of a record end {value_end - end} bytes after the record")
        if has_key:
            found[data[key_at:key_end]] = data[position:value_end] if length >= 0 else None
        position = end
    return position
