"""Records against kafka-python's builder and reader, for every codec, and against malformed bytes."""

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas_broker.wire.record_batch import LOG_APPEND_TIME_BIT, BatchHeader, parse_header, sealed_batch
from barnabas_broker.wire.records import (
    BrokenRecords,
    Header,
    Record,
    decode_batch,
    encode_batch,
    encode_varint,
    iterate_records,
)
from harness.soak import size

CODECS = range(5)
BYTES_MAX = 1 << 20
every_codec = pytest.mark.parametrize("codec", CODECS)

payloads = st.none() | st.binary(max_size=60)
times_ms = st.integers(0, 2**41)
headers = st.lists(st.builds(Header, st.text(max_size=8), payloads), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    deltas = sorted(draw(st.sets(st.integers(0, 5000), min_size=1, max_size=8)))
    return [Record(delta, draw(times_ms), draw(payloads), draw(payloads), tuple(draw(headers))) for delta in deltas]


def decoded(batch: bytes | bytearray, bytes_max: int = BYTES_MAX) -> list[Record]:
    records = decode_batch(batch, 0, parse_header(batch, 0), bytes_max)
    return [record._replace(headers=tuple(record.headers)) for record in records]


@every_codec
@settings(max_examples=size(15, 1_000))
@given(records=record_lists())
def test_encoded_records_are_decoded_unchanged_by_our_decoder_and_kafka_python(
    codec: int, records: list[Record]
) -> None:
    batch = encode_batch(records, base_offset=70, attributes=codec, producer_id=5, producer_epoch=6, base_sequence=7)
    assert decoded(batch) == records
    theirs = DefaultRecordBatch(bytes(batch))
    assert theirs.validate_crc()
    assert (theirs.base_offset, theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (70, 5, 6, 7)
    assert theirs.max_timestamp == max(record.timestamp_ms for record in records)
    assert [(each.offset - 70, each.timestamp, each.key, each.value, each.headers) for each in theirs] == [
        (each.offset_delta, each.timestamp_ms, each.key, each.value, [tuple(header) for header in each.headers])
        for each in records
    ]


@every_codec
@settings(max_examples=size(15, 1_000))
@given(records=st.lists(st.tuples(times_ms, payloads, payloads, headers), min_size=1, max_size=8))
def test_records_that_kafka_python_built_are_read(codec: int, records: list[Any]) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    for offset, (timestamp_ms, key, value, carried) in enumerate(records):
        builder.append(offset, timestamp_ms, key, value, [tuple(header) for header in carried])
    batch = bytes(builder.build())
    assert decoded(batch) == [
        Record(offset, timestamp_ms, key, value, tuple(carried))
        for offset, (timestamp_ms, key, value, carried) in enumerate(records)
    ]


def test_a_batch_in_the_middle_of_a_buffer_is_read_in_place() -> None:
    batch = encode_batch([Record(0, 5, b"k", b"v")])
    buffer = memoryview(b"before" + batch + b"behind")
    assert decode_batch(buffer, 6, parse_header(buffer, 6), BYTES_MAX) == [Record(0, 5, b"k", b"v")]


def test_every_record_of_a_log_append_time_batch_has_the_batchs_time() -> None:
    batch = encode_batch(
        [Record(0, 5, None, b""), Record(1, 6, None, b"")], attributes=LOG_APPEND_TIME_BIT, max_timestamp_ms=99
    )
    assert [record.timestamp_ms for record in decoded(batch)] == [99, 99]


def test_a_batch_that_compaction_emptied_has_no_records() -> None:
    batch = encode_batch([], base_timestamp_ms=5, max_timestamp_ms=9, last_offset_delta=4, producer_id=7)
    header = parse_header(batch, 0)
    assert (header.record_count, header.last_offset_delta, header.max_timestamp_ms) == (0, 4, 9)
    assert decoded(batch) == []


def test_header_keys_that_are_not_utf8_are_preserved() -> None:
    body = b"\0\0\0\1\1\2" + b"\4\xff\xfe" + b"\1"
    batch = batch_of(encode_varint(len(body)) + body)
    again = encode_batch(decoded(batch))
    assert bytes(again[61:]) == bytes(batch[61:])


def batch_of(data: bytes, count: int = 1, last_offset_delta: int | None = None, attributes: int = 0) -> bytearray:
    """Return a batch with a valid CRC and these bytes in place of its records."""
    last = count - 1 if last_offset_delta is None else last_offset_delta
    return sealed_batch(BatchHeader(0, 0, -1, 2, 0, attributes, last, 0, 0, -1, -1, -1, count), data)


RECORD = b"\0\0\0\1\1\0"
"""A record with attributes, time and delta 0, null key and value, and no headers."""


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (encode_varint(6) + RECORD, 2),
        (encode_varint(6) + RECORD + b"\0", 1),
        (encode_varint(7) + RECORD, 1),
        (encode_varint(5) + RECORD, 1),
        (encode_varint(-1) + RECORD, 1),
        (encode_varint(2**40) + RECORD, 1),
        (b"\xff" * 11 + RECORD, 1),
        (encode_varint(6) + b"\0\0\2\1\1\0", 1),  # A delta behind the last.
        (encode_varint(6) + b"\0\0\1\1\1\0", 1),  # A negative delta.
        (encode_varint(6) + b"\0\0\0\x7e\1\0", 1),  # A key longer than the batch.
        (encode_varint(6) + b"\0\0\0\1\1\x7e", 1),  # More headers than bytes.
        (encode_varint(6) + b"\0\0\0\1\1\1", 1),  # Minus one headers.
        (encode_varint(8) + b"\0\0\0\1\1\2\1\1", 1),  # A header without a key.
        (encode_varint(6) + RECORD, 2**31 - 1),
    ],
)
def test_records_that_contradict_the_batch_header_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(BrokenRecords):
        decoded(batch_of(data, count))


@every_codec
@settings(max_examples=size(20, 1_000))
@given(data=st.binary(max_size=200), count=st.integers(0, 2**31 - 1))
def test_random_bytes_in_place_of_records_are_decoded_or_refused(codec: int, data: bytes, count: int) -> None:
    batch = batch_of(data, count, attributes=codec)
    try:
        records = decoded(batch)
    except BrokenRecords:
        return
    assert len(records) == count


@settings(max_examples=size(60, 2_000))
@given(records=record_lists(), data=st.data())
def test_records_with_flipped_bits_are_refused_or_can_be_encoded_again(
    records: list[Record], data: st.DataObject
) -> None:
    batch = encode_batch(records)
    position = data.draw(st.integers(61, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = decoded(batch)
    except BrokenRecords:
        return
    assert decoded(encode_batch(read, base_timestamp_ms=0, last_offset_delta=2**31 - 1)) == read


def test_timestamps_beyond_64_bits_wrap_as_in_java() -> None:
    body = b"\0" + encode_varint(2**63 - 1) + RECORD[2:]
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, 2**62, 0, -1, -1, -1, 1)
    batch = sealed_batch(header, encode_varint(len(body)) + body)
    assert decoded(batch)[0].timestamp_ms == 2**62 + 2**63 - 1 - 2**64


@contextmanager
def bytes_taken_at_most(limit: int) -> Iterator[None]:
    """Fail if more memory than `limit` is taken in between."""
    tracemalloc.start()
    try:
        yield
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < limit


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_decompression_bomb_is_refused_and_takes_little_memory(codec: int) -> None:
    batch = encode_batch([Record(0, 0, None, bytes(32 << 20))], attributes=codec)
    with bytes_taken_at_most(8 << 20), pytest.raises(BrokenRecords, match="batch at offset 0"):
        decoded(batch)


def test_many_small_records_are_read_one_by_one_in_little_memory() -> None:
    count = 20_000
    data = (encode_varint(6) + RECORD) * count
    batch = batch_of(data, count)
    with bytes_taken_at_most(3 * len(data)):
        assert sum(1 for _ in iterate_records(batch, 0, parse_header(batch, 0), 1 << 30)) == count


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_of_64_bits_is_zigzag(value: int) -> None:
    zigzag = struct.pack(">Q", (value << 1 ^ value >> 63) & (2**64 - 1))
    number = int.from_bytes(zigzag)
    groups = [number >> shift & 0x7F for shift in range(0, 70, 7)]
    while len(groups) > 1 and groups[-1] == 0:
        groups.pop()
    assert encode_varint(value) == bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
