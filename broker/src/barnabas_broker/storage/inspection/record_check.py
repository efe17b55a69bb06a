"""Checks the records of a client's batch in full, as Kafka's LogValidator does. Pure.

`record_walk` is for batches that were taken already: compaction decides by less, and has to live with more.
"""

from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.storage.helper.record_walk import RECORDS_BYTES_MAX, RECORDS_MAX
from barnabas_broker.wire.records import BrokenRecords, read_varint

_ONE_BYTE_MAX: Final = 0x7F


class TooManyHeaders(Exception):
    """The records have more headers than the caller has time for."""


@dataclass(slots=True)
class CheckedRecords:
    """The properties of a batch's records that a topic has rules for: timestamp deltas, and records without a key."""

    headers_left: int
    """The number of headers that may still be walked through."""
    timestamp_deltas: list[int] = field(default_factory=list)
    keyless: list[int] = field(default_factory=list)


def check_records(
    data: bytes, position: int, end: int, count: int, headers_max: int = RECORDS_BYTES_MAX
) -> CheckedRecords:
    """`count` whole records with the offset deltas 0, 1, 2 ... fill `data[position:end]`. BrokenRecords if not.

    TooManyHeaders when all of them together have more than `headers_max`.
    """
    if count > RECORDS_MAX:
        raise BrokenRecords(f"{count} records in one batch; at most {RECORDS_MAX} are allowed")
    checked = CheckedRecords(headers_max)
    try:
        for number in range(count):
            position = _check_record(data, position, end, number, checked)
    except IndexError:
        raise BrokenRecords(f"record {len(checked.timestamp_deltas)} ends past the batch") from None
    if position != end:
        raise BrokenRecords(f"{end - position} bytes after the last of {count} records")
    return checked


def _check_record(data: bytes, position: int, end: int, number: int, checked: CheckedRecords) -> int:
    """Check a record, and return where the next one begins.

    Nearly all numbers have one byte: these are read without a call.
    """
    length, position = read_varint(data, position)
    record_end = position + length
    byte = data[position + 1]
    position += 2
    if byte > _ONE_BYTE_MAX:
        timestamp_delta, position = read_varint(data, position - 1)
    else:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
    offset_delta, position = read_varint(data, position)
    if offset_delta != number:
        raise BrokenRecords(f"record {number} has the offset delta {offset_delta}")
    key_bytes, position = _read_length(data, position)
    if key_bytes < 0:
        checked.keyless.append(number)
    else:
        position += key_bytes
    value_bytes, position = _read_length(data, position)
    if value_bytes > 0:
        position += value_bytes
    if data[position]:
        position = _behind_headers(data, position, min(record_end, end), checked)
    else:
        position += 1
    if position != record_end or position > end:
        raise BrokenRecords(f"record {number} has {length} bytes, but its fields do not end there")
    checked.timestamp_deltas.append(timestamp_delta)
    return position


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return the length of a key or a value, and the position behind it. Below 0 it is null, as in Kafka."""
    byte = data[position]
    if byte > _ONE_BYTE_MAX:
        return read_varint(data, position)
    return (byte >> 1) ^ -(byte & 1), position + 1


def _behind_headers(data: bytes, position: int, record_end: int, checked: CheckedRecords) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count <= record_end - position:
        raise BrokenRecords(f"{count} headers")
    checked.headers_left -= count
    if checked.headers_left < 0:
        raise TooManyHeaders
    for _ in range(count):
        key_bytes, position = read_varint(data, position)
        if key_bytes < 0:
            raise BrokenRecords("a header without a key")
        value_bytes, position = read_varint(data, position + key_bytes)
        position += max(value_bytes, 0)
    return position
