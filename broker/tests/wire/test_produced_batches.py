"""Kafka's rules for the batch that a client produces, one by one, with the error that each gives."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from barnabas_broker.wire.record_batch import (
    HEADER,
    HEADER_BYTES,
    BatchHeader,
    assign_log_append_time,
    assign_offset,
    crc_matches,
    extension_of_crc32c,
    parse_header,
    validate_produced,
)
from barnabas_core.errors import ApiError, ErrorCode

MESSAGE_BYTES_MAX = 1 << 20


def kafka_batch(
    codec: int = 0, count: int = 3, producer_id: int = -1, epoch: int = -1, sequence: int = -1
) -> bytearray:
    builder = DefaultRecordBatchBuilder(2, codec, False, producer_id, epoch, sequence, 1 << 20)
    for offset in range(count):
        builder.append(offset, 1000 + offset, b"key", b"value" * 20, [])
    return bytearray(builder.build())


def changed(**fields: Any) -> bytearray:
    """Return kafka-python's batch with other header fields and a valid CRC."""
    batch = kafka_batch()
    HEADER.pack_into(batch, 0, *parse_header(batch, 0)._replace(**fields))
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def refusal(batch: bytearray, message_bytes_max: int = MESSAGE_BYTES_MAX) -> tuple[ErrorCode, str]:
    with pytest.raises(ApiError) as caught:
        validate_produced(memoryview(batch), message_bytes_max)
    return caught.value.code, str(caught.value)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_of_kafka_python_is_accepted_at_any_place_in_a_buffer(codec: int) -> None:
    batch = kafka_batch(codec, producer_id=5, epoch=0, sequence=0)
    header = validate_produced(memoryview(b"before" + batch + b"behind")[6:-6], MESSAGE_BYTES_MAX)
    assert header == parse_header(batch, 0)
    assert (header.record_count, header.last_offset, header.compression) == (3, 2, codec)
    assert header.size_bytes == len(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 0, 0)


@pytest.mark.parametrize(
    ("fields", "code", "complaint"),
    [
        ({"magic": 1}, ErrorCode.INVALID_RECORD, "magic 1"),
        ({"base_offset": 7}, ErrorCode.INVALID_RECORD, "base offset 7"),
        ({"record_count": 0, "last_offset_delta": -1}, ErrorCode.INVALID_RECORD, "0 records"),
        ({"record_count": -1}, ErrorCode.INVALID_RECORD, "-1 records"),
        ({"record_count": 4}, ErrorCode.INVALID_RECORD, "4 records do not match the last offset delta 2"),
        ({"attributes": 0x20}, ErrorCode.INVALID_RECORD, "control"),
        ({"attributes": 0x10}, ErrorCode.INVALID_RECORD, "producer -1"),
        (
            {"attributes": 0x10, "producer_id": 9, "producer_epoch": 0, "base_sequence": 0},
            ErrorCode.INVALID_TXN_STATE,
            "outside a transaction",
        ),
        ({"attributes": 0x08}, ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
        ({"attributes": 0x05}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 5"),
        ({"attributes": 0x40}, ErrorCode.INVALID_RECORD, "0x0040"),
        ({"attributes": -(2**15)}, ErrorCode.INVALID_RECORD, "0x8000"),
        ({"producer_id": 9}, ErrorCode.INVALID_RECORD, "producer 9 has epoch -1 and sequence -1"),
        ({"producer_id": 9, "producer_epoch": 0}, ErrorCode.INVALID_RECORD, "sequence -1"),
        ({"length": 200}, ErrorCode.INVALID_RECORD, "one whole batch"),
        ({"length": -1}, ErrorCode.INVALID_RECORD, "one whole batch"),
        ({"length": 2**31 - 1}, ErrorCode.INVALID_RECORD, "one whole batch"),
    ],
)
def test_a_batch_that_breaks_a_rule_is_refused_with_its_error(
    fields: dict[str, int], code: ErrorCode, complaint: str
) -> None:
    refused, message = refusal(changed(**fields))
    assert refused == code
    assert complaint in message


def test_no_batch_and_more_than_one_are_refused() -> None:
    assert refusal(bytearray())[0] == ErrorCode.INVALID_RECORD
    assert refusal(kafka_batch() + kafka_batch())[0] == ErrorCode.INVALID_RECORD
    assert refusal(kafka_batch()[:HEADER_BYTES])[0] == ErrorCode.INVALID_RECORD


def test_a_batch_larger_than_the_topic_allows_is_refused_before_its_crc_is_computed() -> None:
    batch = kafka_batch()
    batch[-1] ^= 1
    code, message = refusal(batch, len(batch) - 1)
    assert code == ErrorCode.MESSAGE_TOO_LARGE
    assert f"max.message.bytes={len(batch) - 1}" in message
    assert refusal(batch, len(batch))[0] == ErrorCode.CORRUPT_MESSAGE


@given(st.data())
def test_a_flipped_bit_is_found_except_in_the_leader_epoch(data: st.DataObject) -> None:
    batch = kafka_batch()
    position = data.draw(st.integers(0, len(batch) - 1))
    batch[position] ^= 1 << data.draw(st.integers(0, 7))
    if position in range(12, 16):  # The leader epoch.
        assert validate_produced(memoryview(batch), MESSAGE_BYTES_MAX).record_count == 3
    else:
        refusal(batch)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(junk: bytes) -> None:
    refusal(bytearray(junk))


def test_offset_and_leader_epoch_are_written_in_place_outside_of_the_crc() -> None:
    batch = kafka_batch()
    assign_offset(batch, 0, 2**40, 17)
    stored = DefaultRecordBatch(bytes(batch))
    assert stored.validate_crc()
    assert [record.offset for record in stored] == [2**40, 2**40 + 1, 2**40 + 2]
    header = parse_header(batch, 0)
    assert (header.base_offset, header.leader_epoch) == (2**40, 17)
    assert crc_matches(memoryview(batch), 0, header)


def test_log_append_time_is_written_with_a_new_crc() -> None:
    batch = kafka_batch()
    assign_log_append_time(memoryview(batch), 0, parse_header(batch, 0), 123_456)
    stored = DefaultRecordBatch(bytes(batch))
    assert stored.validate_crc()
    assert {(record.timestamp, record.timestamp_type) for record in stored} == {(123_456, 1)}
    assert isinstance(parse_header(batch, 0), BatchHeader)


def test_the_extension_alone_computes_the_checksums_of_the_package() -> None:
    for data in (b"", b"123456789", bytearray(range(256)) * 5, memoryview(b"a view")):
        assert extension_of_crc32c()(data) == crc32c(data)


def test_a_package_without_an_extension_is_imported_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crc32c.py").write_text("def crc32c(data):\n    return len(data)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "crc32c")
    assert extension_of_crc32c()(b"four") == 4
