"""Produce (0), v3 to v13: requests parsed in place, responses written straight down.

The records stay where they are: the request has their places in the buffer. v9 is flexible, v13 has topic ids for
names.
"""

import struct
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.wire.framing import (
    BROKEN_BYTES,
    MalformedRequest,
    encode_unsigned_varint,
    read_unsigned_varint,
    skip_tagged_fields,
)
from barnabas_broker.wire.strings import (
    read_count,
    read_name,
    read_nullable_string,
    read_topic_id,
    write_count,
    write_name,
)

FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13
LOG_START_OFFSET_SINCE: Final = 5
ERROR_MESSAGES_SINCE: Final = 8

_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INDEX: Final = struct.Struct(">i")
_INDEX_LENGTH: Final = struct.Struct(">ii")
_SIZE_CORRELATION: Final = struct.Struct(">ii")
_RESULT: Final = struct.Struct(">ihqqq")
_RESULT_V3: Final = struct.Struct(">ihqq")
_NO_RECORD_ERRORS: Final = b"\0\0\0\0"
_NULL_STRING: Final = b"\xff\xff"
_NO_ERRORS_NO_MESSAGE: Final = b"\x01\x00\x00"
"""Flexible: an empty array, a null string, no tagged fields."""


class ProducePartition(NamedTuple):
    """The batch for one partition: `buffer[start:end]`; both 0 for null records."""

    partition: int
    start: int
    end: int


class ProduceTopic(NamedTuple):
    """`name` up to v12, `topic_id` from v13 on; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    """What to append where."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProduceResult(NamedTuple):
    """What became of one partition's batch; offsets and time are -1 where there is none."""

    partition: int
    error: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None


def parse_produce(buffer: memoryview, start: int, end: int, version: int) -> ProduceRequest:
    """The body in `buffer[start:end]`; MalformedRequest unless it is one, to the last byte."""
    data = buffer[:end]
    flexible = version >= FLEXIBLE_SINCE
    try:
        transactional_id, position = read_nullable_string(data, start, flexible=flexible)
        acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, position)
        count, position = read_count(data, position + 6, flexible=flexible)
        topics = []
        for _ in range(count):
            topic, position = _parse_topic(data, position, version)
            topics.append(topic)
        if flexible:
            position = skip_tagged_fields(data, position)
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"Produce: {error}") from None
    if position != end:
        raise MalformedRequest(f"Produce: the request has {end - start} bytes, its fields {position - start}")
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _parse_topic(data: memoryview, position: int, version: int) -> tuple[ProduceTopic, int]:
    flexible = version >= FLEXIBLE_SINCE
    name, topic_id = None, None
    if version >= TOPIC_IDS_SINCE:
        topic_id, position = read_topic_id(data, position)
    else:
        name, position = read_name(data, position, flexible=flexible)
    count, position = read_count(data, position, flexible=flexible)
    partitions = []
    for _ in range(count):
        if flexible:
            (index,) = _INDEX.unpack_from(data, position)
            length, position = read_unsigned_varint(data, position + 4)
            length -= 1
        else:
            index, length = _INDEX_LENGTH.unpack_from(data, position)
            position += 8
        records_end = position + length if length > 0 else position
        if records_end > len(data):
            raise MalformedRequest(f"records of {length} bytes end behind the request")
        partitions.append(ProducePartition(index, position, records_end))
        position = skip_tagged_fields(data, records_end) if flexible else records_end
    if flexible:
        position = skip_tagged_fields(data, position)
    return ProduceTopic(name, topic_id, partitions), position


def encode_produce_response(
    correlation_id: int, version: int, topics: list[tuple[ProduceTopic, list[ProduceResult]]], throttle_ms: int = 0
) -> bytearray:
    """The framed response: a result for every partition of the request, in its order."""
    flexible = version >= FLEXIBLE_SINCE
    out = bytearray(8)
    if flexible:
        out += b"\0"  # The header's tagged fields.
    out += write_count(len(topics), flexible=flexible)
    for topic, results in topics:
        out += topic.topic_id.bytes if topic.topic_id is not None else write_name(topic.name or "", flexible=flexible)
        out += write_count(len(results), flexible=flexible)
        for result in results:
            out += _encode_flexible(result) if flexible else _encode_classic(result, version)
        if flexible:
            out += b"\0"
    out += _INDEX.pack(throttle_ms)
    if flexible:
        out += b"\0"
    _SIZE_CORRELATION.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def _encode_flexible(result: ProduceResult) -> bytes:
    fixed = _RESULT.pack(*result[:5])
    if result.error_message is None:
        return fixed + _NO_ERRORS_NO_MESSAGE
    message = result.error_message.encode()
    return fixed + b"\x01" + encode_unsigned_varint(len(message) + 1) + message + b"\0"


def _encode_classic(result: ProduceResult, version: int) -> bytes:
    if version < LOG_START_OFFSET_SINCE:
        return _RESULT_V3.pack(*result[:4])
    fixed = _RESULT.pack(*result[:5])
    if version < ERROR_MESSAGES_SINCE:
        return fixed
    message = result.error_message
    return fixed + _NO_RECORD_ERRORS + (_NULL_STRING if message is None else write_name(message, flexible=False))
