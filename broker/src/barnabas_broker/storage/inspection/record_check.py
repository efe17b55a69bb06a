"""The full check of the records of a client's batch, as in Kafka's LogValidator.

For batches that are already in a log, `record_walk` checks less.
"""

from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.storage.helper.record_walk import RECORDS_BYTES_MAX, RECORDS_MAX
from barnabas_broker.wire.records import BrokenRecords, read_varint

_ONE_BYTE_MAX: Final = 0x7F


class TooManyHeaders(Exception):
    """The error that a batch has more record headers than the caller allows."""


@dataclass(slots=True)
class CheckedRecords:
    """The timestamp deltas of a batch's records, and the indexes of the records without a key (`keyless`)."""

    headers_left: int
    """The number of headers that the batch may still have: the maximum minus the headers counted so far."""
    timestamp_deltas: list[int] = field(default_factory=list)
    keyless: list[int] = field(default_factory=list)


def check_records(
    data: bytes, position: int, end: int, count: int, headers_max: int = RECORDS_BYTES_MAX
) -> CheckedRecords:
    """Check the `count` records in `data[position:end]`; return their timestamp deltas, and which have no key.

    Raises BrokenRecords if a record is invalid, or the offset deltas are not 0, 1, 2 and so on. Raises TooManyHeaders
    if all records together have more than `headers_max` headers.
    """
    if count > RECORDS_MAX:
        raise BrokenRecords(f"the batch has {count} records; at most {RECORDS_MAX} are allowed")
    checked = CheckedRecords(headers_max)
    try:
        for number in range(count):
            position = _check_record(data, position, end, number, checked)
    except IndexError:
        raise BrokenRecords(f"record {len(checked.timestamp_deltas)} ends after the end of the batch") from None
    if position != end:
        raise BrokenRecords(f"{end - position} bytes follow the last of {count} records")
    return checked


def _check_record(data: bytes, position: int, end: int, number: int, checked: CheckedRecords) -> int:
    """Check a record, add its properties to `checked`, and return the position of the next record.

    A varint of one byte, the most frequent length, is decoded without a function call for speed.
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
        raise BrokenRecords(f"record {number} has the offset delta {offset_delta}, which must be the record's number")
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
        raise BrokenRecords(f"record {number} has a length of {length} bytes, but its fields have another length")
    checked.timestamp_deltas.append(timestamp_delta)
    return position


def _read_length(data: bytes, position: int) -> tuple[int, int]:
    """Return the length of a key or value, and the position after the length. A negative length means null."""
    byte = data[position]
    if byte > _ONE_BYTE_MAX:
        return read_varint(data, position)
    return (byte >> 1) ^ -(byte & 1), position + 1


def _behind_headers(data: bytes, position: int, record_end: int, checked: CheckedRecords) -> int:
    count, position = read_varint(data, position)
    if not 0 <= count <= record_end - position:
        raise BrokenRecords(f"a record has {count} headers, which do not fit into the record")
    checked.headers_left -= count
    if checked.headers_left < 0:
        raise TooManyHeaders
    for _ in range(count):
        key_bytes, position = read_varint(data, position)
        if key_bytes < 0:
            raise BrokenRecords("a record has a header without a key")
        value_bytes, position = read_varint(data, position + key_bytes)
        position += max(value_bytes, 0)
    return position
