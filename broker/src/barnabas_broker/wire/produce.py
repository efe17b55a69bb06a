"""Produce (0), v3 to v13: the parsing of requests and the encoding of responses.

A request holds the positions of its batches in the buffer, so records are not copied. v9 is flexible, v10 adds current
leaders, and v13 replaces topic names by topic ids. This code is the hottest of the broker, so it creates plain tuples,
and reads many fields with one call.
"""

import struct
from collections.abc import Iterable
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec import structs

from barnabas_broker.wire.framing import (
    BROKEN_BYTES,
    NAMES_MAX,
    NO_TAGS,
    UUID_BYTES,
    CurrentLeader,
    MalformedRequest,
    check_count,
    encode_unsigned_varint,
    endpoint_fields,
    leader_fields,
    read_count,
    read_name,
    read_nullable_string,
    read_unsigned_varint,
    skip_tagged_fields,
    write_count,
    write_name,
)
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps

FLEXIBLE_SINCE: Final = 9
TOPIC_IDS_SINCE: Final = 13
LOG_START_OFFSET_SINCE: Final = 5
ERROR_MESSAGES_SINCE: Final = 8
CURRENT_LEADERS_SINCE: Final = 10
CURRENT_LEADER_TAG: Final = 0

RecordErrors = tuple[tuple[int, str | None], ...]
"""The index and error message of each invalid record; None means the error message of the batch (KIP-467)."""


class ProduceRefusal(NamedTuple):
    """The details of an error in a result."""

    message: str | None
    record_errors: RecordErrors = ()
    """The invalid records; empty if the batch as a whole is invalid."""
    leader: CurrentLeader | None = None
    """The current leader of the partition, if a broker other than this one leads."""


ProduceResult = tuple[int, int, int, int, int, ProduceRefusal | None]
"""The partition number, error code, base offset, log append time in ms, log start offset, and details of an error.

An unknown offset or time is -1.
"""

_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">ii")
_ONE_PARTITION: Final = struct.Struct(">BhiB16sBi")
"""The start of a v13 request for one partition, before the length of the records.

The fields are: a null transactional id, acks, timeout_ms, one topic id, and one partition.
"""
_ONE_PARTITION_BYTES: Final = _ONE_PARTITION.size
_unpack_one_partition: Final = _ONE_PARTITION.unpack_from
_ONE_RESULT: Final = struct.Struct(">iiBB16sBihqqqB8x")
"""The response to a v13 request for one partition.

The fields are: size, correlation id, empty tagged fields, one topic id, one result, and an empty array of record
errors. The other bytes are always zero: a null error message, a throttle time of 0, and empty tagged fields.
"""
_ONE_RESULT_SIZE: Final = _ONE_RESULT.size - 4
_pack_one_result: Final = _ONE_RESULT.pack
_NONE: Final = 1
"""The encoded length prefix of an empty compact array: the number of elements plus 1."""
_ONE: Final = 2
"""The encoded length prefix of a compact array with one element: the number of elements plus 1."""
_RESULT: Final = struct.Struct(">ihqqq")
_RESULT_V3: Final = struct.Struct(">ihqq")
_SIZE_CORRELATION: Final = struct.Struct(">ii")
_NO_ERRORS_NO_MESSAGE: Final = b"\0\0\0\0\xff\xff"
"""The encoding before v9 of an empty array of record errors and a null error message."""
_NO_ERRORS_NO_MESSAGE_COMPACT: Final = b"\1\0\0"
"""The encoding from v9 on of an empty array of record errors, a null error message and no tagged fields."""
_NO_THROTTLE: Final = bytes(4)
_NO_TAGS_OF_ALL: Final = bytes(3)
"""The end of a request for one partition: the empty tagged fields of the partition, the topic and the request."""


class ProduceTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic of a request: up to v12 with `name`, from v13 on with the bytes of `topic_id`."""

    name: str | None
    topic_id: bytes | None
    partition_count: int


ProduceBatch = tuple[ProduceTopic, int, int, int]
"""The topic, the partition number, and the start and end of the batch in the buffer (equal for null records)."""


class ProduceRequest(msgspec.Struct, frozen=True, gc=False):
    """A Produce request: the batches to append to partitions."""

    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]
    batches: list[ProduceBatch]
    """The batches of all topics, in the order of the request."""
    transactional_id: str | None = None
    only_topic_id: bytes | None = None
    """The topic id if `parse_produce` took the fast path for requests with one batch; otherwise None.

    With the topic id the response is encoded faster, too.
    """


def parse_produce(buffer: memoryview, start: int, end: int, version: int) -> ProduceRequest:
    """Parse the body in `buffer[start:end]`, and ignore extra bytes at its end. Raises MalformedRequest.

    A request with one batch and without tagged fields, as most clients send, is parsed with few calls.
    """
    if version >= TOPIC_IDS_SINCE:
        try:
            unnamed, acks, timeout_ms, topics, topic_id, count, partition = _unpack_one_partition(buffer, start)
            if not unnamed and topics == _ONE and count == _ONE:
                length, batch_start = read_unsigned_varint(buffer, start + _ONE_PARTITION_BYTES)
                batch_end = batch_start + length - 1
                if length and buffer[batch_end:end] == _NO_TAGS_OF_ALL:
                    topic = ProduceTopic(None, topic_id, 1)
                    places = [(topic, partition, batch_start, batch_end)]
                    return ProduceRequest(acks, timeout_ms, [topic], places, None, topic_id)
        except BROKEN_BYTES:  # The request is too short for the struct of one partition.
            pass
    return _parse_any(buffer, start, end, version)


def _parse_any(buffer: memoryview, start: int, end: int, version: int) -> ProduceRequest:
    data = buffer[:end]
    try:
        if version < FLEXIBLE_SINCE:
            request, position = _parse_classic(data, start)
        elif data[start]:
            request, position = _parse_transactional(data, start, version)
        else:
            request, position = _parse_flexible(data, start + 1, version)
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"Produce: {error}") from None
    if position > end:
        raise MalformedRequest(f"Produce: the request has {end - start} bytes, but its fields take {position - start}")
    return request


def _parse_classic(data: memoryview, position: int) -> tuple[ProduceRequest, int]:
    end = len(data)
    transactional_id, position = read_nullable_string(data, position, flexible=False)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(data, position)
    position += 10
    elements = check_count(topic_count, data, position)
    topics, batches = [], []
    for _ in range(topic_count):
        (name_bytes,) = _INT16.unpack_from(data, position)
        name_start = position + 2
        position = name_start + name_bytes
        if name_bytes < 0 or position > end:
            raise MalformedRequest(
                f"a topic name has the length {name_bytes}: it is null, or longer than the rest of the request"
            )
        name = str(data[name_start:position], "utf-8")
        (count,) = _INT32.unpack_from(data, position)
        position += 4
        elements += check_count(count, data, position)
        topic = ProduceTopic(name, None, max(count, 0))
        topics.append(topic)
        for _ in range(count):
            partition, length = _PARTITION.unpack_from(data, position)
            records_start = position + 8
            position = records_start + length if length > 0 else records_start
            if position > end:
                raise MalformedRequest(f"records of {length} bytes are longer than the rest of the request")
            batches.append((topic, partition, records_start, position))
        if elements > NAMES_MAX:
            raise _too_many(elements)
    return ProduceRequest(acks, timeout_ms, topics, batches, transactional_id), position


def _parse_flexible(data: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    """Parse the fields after the transactional id."""
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(data, position)
    topic_count, position = read_count(data, position + 6, flexible=True)
    elements = topic_count
    topics, batches = [], []
    for _ in range(topic_count):
        name, topic_id = None, None
        if version >= TOPIC_IDS_SINCE:
            topic_id = bytes(data[position : position + UUID_BYTES])
            position += UUID_BYTES
        else:
            name, position = read_name(data, position, flexible=True)
        count, position = read_count(data, position, flexible=True)
        elements += count
        topic = ProduceTopic(name, topic_id, count)
        topics.append(topic)
        for _ in range(count):
            (partition,) = _INT32.unpack_from(data, position)
            length, records_start = read_unsigned_varint(data, position + 4)
            position = records_start + length - 1 if length > 1 else records_start
            batches.append((topic, partition, records_start, position))
            position = position + 1 if not data[position] else skip_tagged_fields(data, position)
        if elements > NAMES_MAX:
            raise _too_many(elements)
        position = position + 1 if not data[position] else skip_tagged_fields(data, position)
    position = position + 1 if not data[position] else skip_tagged_fields(data, position)
    return ProduceRequest(acks, timeout_ms, topics, batches), position


def _parse_transactional(data: memoryview, position: int, version: int) -> tuple[ProduceRequest, int]:
    transactional_id, position = read_nullable_string(data, position, flexible=True)
    request, position = _parse_flexible(data, position, version)
    return structs.replace(request, transactional_id=transactional_id), position


def _too_many(count: int) -> MalformedRequest:
    return MalformedRequest(f"Produce: {count} topics and partitions are too many; at most {NAMES_MAX} are allowed")


def encode_produce_response(
    correlation_id: int, version: int, request: ProduceRequest, results: list[ProduceResult]
) -> bytes | bytearray:
    """Return the frame of a response, with a result for every batch of the request in order, and throttle time 0."""
    topic_id = request.only_topic_id
    if topic_id is not None:
        *fields, refusal = results[0]
        if refusal is None:
            return _pack_one_result(_ONE_RESULT_SIZE, correlation_id, 0, _ONE, topic_id, _ONE, *fields, _NONE)
    leaders: list[CurrentLeader] = []
    out, following = _begin(version, request), iter(results)
    for topic in request.topics:
        _begin_topic(out, version, topic)
        _add_results(out, version, islice(following, topic.partition_count), leaders)
        if version >= FLEXIBLE_SINCE:
            out += NO_TAGS
    return _end(out, version, correlation_id, leaders)


def produce_response_in_steps(
    correlation_id: int, version: int, request: ProduceRequest, results: list[ProduceResult]
) -> InSteps[bytearray]:
    """Encode as `encode_produce_response` does, in steps of a few results."""
    leaders: list[CurrentLeader] = []
    out, following = _begin(version, request), iter(results)
    for topic in request.topics:
        _begin_topic(out, version, topic)
        yield 0
        of_topic = islice(following, topic.partition_count)
        for _ in range(0, topic.partition_count, STEP_ELEMENTS):
            _add_results(out, version, islice(of_topic, STEP_ELEMENTS), leaders)
            yield 0
        if version >= FLEXIBLE_SINCE:
            out += NO_TAGS
    return _end(out, version, correlation_id, leaders)


def set_throttle_time(response: bytes | bytearray, version: int, throttle_ms: int) -> bytearray:
    """Return a copy of an encoded response with the throttle time.

    The copy is unchanged if the response has endpoints of new leaders: the throttle time is then not at the response's
    end, where this function looks for it.
    """
    copy = bytearray(response)
    tail = _NO_THROTTLE if version < FLEXIBLE_SINCE else _NO_THROTTLE + NO_TAGS
    if copy.endswith(tail):
        _INT32.pack_into(copy, len(copy) - len(tail), throttle_ms)
    return copy


def _begin(version: int, request: ProduceRequest) -> bytearray:
    out = bytearray(8)
    if version >= FLEXIBLE_SINCE:
        out += NO_TAGS
    out += write_count(len(request.topics), flexible=version >= FLEXIBLE_SINCE)
    return out


def _begin_topic(out: bytearray, version: int, topic: ProduceTopic) -> None:
    is_flexible = version >= FLEXIBLE_SINCE
    out += topic.topic_id or write_name(topic.name or "", flexible=is_flexible)
    out += write_count(topic.partition_count, flexible=is_flexible)


def _add_results(out: bytearray, version: int, results: Iterable[ProduceResult], leaders: list[CurrentLeader]) -> None:
    """Append the encoded results of a topic; add the current leaders that they name to `leaders`."""
    if version >= FLEXIBLE_SINCE:
        _add_flexible(out, version, results, leaders)
        return
    for partition, error, base_offset, append_time_ms, log_start_offset, refusal in results:
        if version < LOG_START_OFFSET_SINCE:
            out += _RESULT_V3.pack(partition, error, base_offset, append_time_ms)
            continue
        out += _RESULT.pack(partition, error, base_offset, append_time_ms, log_start_offset)
        if version >= ERROR_MESSAGES_SINCE:
            out += _NO_ERRORS_NO_MESSAGE if refusal is None else _refusal_classic(refusal)


def _add_flexible(out: bytearray, version: int, results: Iterable[ProduceResult], leaders: list[CurrentLeader]) -> None:
    for *fields, refusal in results:
        out += _RESULT.pack(*fields)
        if refusal is None:
            out += _NO_ERRORS_NO_MESSAGE_COMPACT
            continue
        leader = refusal.leader if version >= CURRENT_LEADERS_SINCE else None
        out += _refusal_flexible(refusal, leader)
        if leader is not None:
            leaders.append(leader)


def _end(out: bytearray, version: int, correlation_id: int, leaders: list[CurrentLeader]) -> bytearray:
    out += _NO_THROTTLE
    if version >= FLEXIBLE_SINCE:
        out += endpoint_fields(leaders) if leaders else NO_TAGS
    _SIZE_CORRELATION.pack_into(out, 0, len(out) - 4, correlation_id)
    return out


def _refusal_classic(refusal: ProduceRefusal) -> bytes:
    out = bytearray(_INT32.pack(len(refusal.record_errors)))
    for number, text in refusal.record_errors:
        out += _INT32.pack(number) + _write_nullable(text, flexible=False)
    return bytes(out + _write_nullable(refusal.message, flexible=False))


def _refusal_flexible(refusal: ProduceRefusal, leader: CurrentLeader | None) -> bytes:
    """Encode the record errors and the error message of a refused batch, and the current leader as a tagged field."""
    out = bytearray(encode_unsigned_varint(len(refusal.record_errors) + 1))
    for number, text in refusal.record_errors:
        out += _INT32.pack(number) + _write_nullable(text, flexible=True) + NO_TAGS
    out += _write_nullable(refusal.message, flexible=True)
    return bytes(out + (NO_TAGS if leader is None else leader_fields(CURRENT_LEADER_TAG, leader)))


def _write_nullable(text: str | None, *, flexible: bool) -> bytes:
    if text is not None:
        return write_name(text, flexible=flexible)
    return b"\0" if flexible else b"\xff\xff"
