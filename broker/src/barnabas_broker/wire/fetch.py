"""Fetch (1), v4 to v18: the parsing of requests; `fetch_response` has the responses.

v5 adds log start offsets, v7 sessions, v9 leader epochs and v11 racks. v12 is flexible and adds the last fetched epoch.
v13 replaces topic names by topic ids, v15 moves the replica id to a tagged field, and v17 and v18 add tagged fields of
followers.

Fetch (1), v4 to v18: the encoding of responses, in which slices of segment files follow encoded headers. v5 adds
log start offsets, v7 sessions, and v11 preferred read replicas. v12 is flexible and adds diverging epochs. v13
replaces topic names by topic ids, and v16 adds current leaders.
"""

import struct
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import msgspec

from barnabas_broker.wire.framing import (
    API_SPECS,
    BROKEN_BYTES,
    FETCH,
    HANDLED_BYTES,
    LED_MAX,
    UUID_BYTES,
    CurrentLeader,
    FileSlice,
    MalformedRequest,
    Part,
    encode_unsigned_varint,
    endpoint_fields,
    leader_fields,
    locate_tagged_fields,
    read_count,
    read_name,
    skip_tagged_fields,
    write_count,
    write_name,
)
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps, at_once

FLEXIBLE_SINCE: Final = 12
LOG_START_OFFSET_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
LEADER_EPOCH_SINCE: Final = 9
RACK_SINCE: Final = 11
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
REPLICA_STATE_TAG: Final = 1

LIMITS: Final = struct.Struct(">iiib")
"""The fields max_wait_ms, min_bytes, max_bytes and isolation_level."""
SESSION: Final = struct.Struct(">ii")
"""The session id and epoch."""
_LIMITS_SESSION: Final = struct.Struct(">iiibii")
"""The fields of LIMITS and SESSION."""
PARTITION: Final = struct.Struct(">iiqiqi")
"""The fields of FetchPartition in flexible versions."""
REPLICA_STATE: Final = struct.Struct(">iq")
"""The follower's id and broker epoch (KIP-903)."""
REPLICA_STATE_BYTES: Final = REPLICA_STATE.size + 1
"""The size in bytes of the encoded ReplicaState, including its own empty tagged fields."""
REPLICA_STATE_HEAD: Final = bytes((1, 1, REPLICA_STATE_TAG, REPLICA_STATE_BYTES))
"""The bytes before the replica state in a follower's request: an empty rack, and the head of one tagged field."""

_INT32: Final = struct.Struct(">i")
_ONE_PARTITION: Final = struct.Struct(">iiibiiB16sBiiqiqi5s")
"""A v15 request of a consumer for one partition: the limits, the session, one topic id, one partition, and empty
fields."""
_NOTHING_ELSE: Final = b"\0\0\1\1\0"
"""The end of a request that has no forgotten topics, no rack and no tagged fields."""
_ONE: Final = 2
"""The encoded length prefix of a compact array with one element: the number of elements plus 1."""
TOPICS_MAX: Final = 15_000
"""The maximum number of topics in a Fetch request; its partitions are counted beside LED_MAX."""
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")


class FetchPartition(msgspec.Struct, frozen=True, gc=False):
    """The offset and size to fetch from a partition; a field is -1 if the client does not know its value."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic of a request: up to v12 with `name`, from v13 on with the bytes of `topic_id`."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchPartition]


class ForgottenTopic(msgspec.Struct, frozen=True, gc=False):
    """The partitions to remove from an incremental fetch session (KIP-227); `name` and `topic_id` as in FetchTopic."""

    name: str | None
    topic_id: bytes | None
    partitions: tuple[int, ...]


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    """A Fetch request; `replica_id` is -1 for a consumer."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


def parse_fetch(buffer: memoryview, start: int, end: int, version: int) -> FetchRequest:
    """Parse the body in `buffer[start:end]`, and ignore extra bytes at its end. Raises MalformedRequest."""
    data = buffer[:end]
    if version >= REPLICA_STATE_SINCE and end - start == _ONE_PARTITION.size:
        one = _parse_one_partition(data, start)
        if one is not None:
            return one
    try:
        arrays = start + _BYTES_BEFORE_ARRAYS[version]
        topics, position = _parse_topics(data, arrays, version)
        forgotten, position = _parse_forgotten(data, position, version)
        return _parse_around(data, start, position, version, topics, forgotten)
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"Fetch: {error}") from None


def parse_fetch_in_steps(
    buffer: memoryview, start: int, end: int, version: int, kept: list[Any]
) -> InSteps[FetchRequest]:
    """Parse as `parse_fetch` does, in steps of a few array elements, and add the elements also to `kept`."""
    data = buffer[:end]
    try:
        arrays = start + _BYTES_BEFORE_ARRAYS[version]
        topics, position = yield from _topics_in_steps(data, arrays, version, kept)
        forgotten, position = yield from _forgotten_in_steps(data, position, version, kept)
        return _parse_around(data, start, position, version, topics, forgotten)
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"Fetch: {error}") from None


def lower_bytes(buffer: memoryview, start: int, version: int, bytes_max: int) -> None:
    """Overwrite `min_bytes` and `max_bytes` in the buffer of a parsed request with `bytes_max`, if they are larger."""
    position = start if version >= REPLICA_STATE_SINCE else start + _INT32.size
    max_wait_ms, min_bytes, max_bytes, isolation_level = LIMITS.unpack_from(buffer, position)
    lower = min(min_bytes, bytes_max), min(max_bytes, bytes_max)
    LIMITS.pack_into(buffer, position, max_wait_ms, *lower, isolation_level)


def _parse_one_partition(data: memoryview, position: int) -> FetchRequest | None:
    """Parse a request for one partition in the form that consumers send; return None if the form is different."""
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topic_count,
        topic_id,
        count,
        *partition,
        rest,
    ) = _ONE_PARTITION.unpack_from(data, position)
    if topic_count != _ONE or count != _ONE or rest != _NOTHING_ELSE:
        return None
    topics = [FetchTopic(None, topic_id, [FetchPartition(*partition)])]
    limits = (max_wait_ms, min_bytes, max_bytes, isolation_level)
    return FetchRequest(-1, -1, *limits, session_id, session_epoch, topics, [])


_BYTES_BEFORE_ARRAYS: Final = tuple(
    LIMITS.size
    + (_INT32.size if version < REPLICA_STATE_SINCE else 0)
    + (SESSION.size if version >= SESSIONS_SINCE else 0)
    for version in range(API_SPECS[FETCH].max_version + 1)
)
"""The number of bytes before the array of topics, by version."""


def _parse_around(
    data: memoryview,
    start: int,
    position: int,
    version: int,
    topics: list[FetchTopic],
    forgotten: list[ForgottenTopic],
) -> FetchRequest:
    """Parse the fields from `start` to the arrays, and those after the arrays, which end at `position`."""
    replica_id, replica_epoch, session_id, session_epoch, head = -1, -1, 0, -1, start
    if version < REPLICA_STATE_SINCE:
        (replica_id,) = _INT32.unpack_from(data, start)
        head += 4
    if version >= SESSIONS_SINCE:
        max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch = _LIMITS_SESSION.unpack_from(
            data, head
        )
    else:
        max_wait_ms, min_bytes, max_bytes, isolation_level = LIMITS.unpack_from(data, head)
    after_head = position + len(REPLICA_STATE_HEAD)
    if version >= FLEXIBLE_SINCE and data[position:after_head] == REPLICA_STATE_HEAD:
        replica_id, replica_epoch = REPLICA_STATE.unpack_from(data, after_head)
        position = after_head + REPLICA_STATE_BYTES
    else:
        flexible = version >= FLEXIBLE_SINCE
        if version >= RACK_SINCE:  # Skip the rack, because consumers fetch from leaders only.
            _, position = read_name(data, position, flexible=flexible)
        if flexible:
            (replica_id, replica_epoch), position = _read_replica_state(data, position, (replica_id, replica_epoch))
    if position > len(data):
        size = len(data) - start
        raise MalformedRequest(f"Fetch: the request has {size} bytes, but its fields take {position - start}")
    return FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
    )


def _parse_topics(data: memoryview, position: int, version: int) -> tuple[list[FetchTopic], int]:
    flexible = version >= FLEXIBLE_SINCE
    topic_count, position = read_count(data, position, flexible=flexible)
    elements = _check_elements(topic_count, TOPICS_MAX)
    topics = []
    for _ in range(topic_count):
        name = topic_id = None
        if version >= TOPIC_IDS_SINCE:
            topic_id = bytes(data[position : position + UUID_BYTES])
            position += UUID_BYTES
        else:
            name, position = read_name(data, position, flexible=flexible)
        count, position = read_count(data, position, flexible=flexible)
        elements += count
        _check_elements(elements, LED_MAX)
        if flexible:
            partitions, position = _parse_flexible_partitions(data, position, count)
            position = skip_tagged_fields(data, position) if data[position] else position + 1
        else:
            partitions, position = _parse_classic_partitions(data, position, count, version)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


def _topics_in_steps(
    data: memoryview, position: int, version: int, kept: list[Any]
) -> InSteps[tuple[list[FetchTopic], int]]:
    """Parse topics as `_parse_topics` does, which takes half the bytecodes.

    A step has at most 2 * STEP_ELEMENTS topics and partitions.
    """
    flexible = version >= FLEXIBLE_SINCE
    topic_count, position = read_count(data, position, flexible=flexible)
    elements, in_step = _check_elements(topic_count, TOPICS_MAX), 0
    topics: list[FetchTopic] = []
    for _ in range(topic_count):
        name, topic_id, position = _read_key(data, position, version)
        partition_count, position = read_count(data, position, flexible=flexible)
        elements += partition_count
        _check_elements(elements, LED_MAX)
        partitions: list[FetchPartition] = []
        for begin in range(0, max(partition_count, 1), STEP_ELEMENTS):
            some, position = _parse_partitions(data, position, min(partition_count - begin, STEP_ELEMENTS), version)
            partitions += some
            in_step += 1 + len(some)
            if in_step >= STEP_ELEMENTS:
                yield in_step * HANDLED_BYTES
                in_step = 0
        if flexible:
            position = skip_tagged_fields(data, position) if data[position] else position + 1
        kept += partitions
        topics.append(FetchTopic(name, topic_id, partitions))
    kept += topics
    return topics, position


def _read_key(data: memoryview, position: int, version: int) -> tuple[str | None, bytes | None, int]:
    """Return the name or the id of a topic, and the position after it."""
    if version >= TOPIC_IDS_SINCE:
        return None, bytes(data[position : position + UUID_BYTES]), position + UUID_BYTES
    name, position = read_name(data, position, flexible=version >= FLEXIBLE_SINCE)
    return name, None, position


def _parse_partitions(data: memoryview, position: int, count: int, version: int) -> tuple[list[FetchPartition], int]:
    if version >= FLEXIBLE_SINCE:
        return _parse_flexible_partitions(data, position, count)
    return _parse_classic_partitions(data, position, count, version)


def _check_elements(elements: int, elements_max: int) -> int:
    if elements > elements_max:
        raise MalformedRequest(
            f"Fetch: {elements} topics and partitions are too many; at most {elements_max} are allowed"
        )
    return elements


def _parse_flexible_partitions(data: memoryview, position: int, count: int) -> tuple[list[FetchPartition], int]:
    """Parse partitions. Consumers send no tagged fields in a partition, so usually one zero byte is skipped."""
    partitions = []
    for _ in range(count):
        partitions.append(FetchPartition(*PARTITION.unpack_from(data, position)))
        position += PARTITION.size
        position = skip_tagged_fields(data, position) if data[position] else position + 1
    return partitions, position


def _parse_classic_partitions(
    data: memoryview, position: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    """Parse partitions; a field is -1 in versions without it."""
    partitions = []
    for _ in range(count):
        epoch = log_start_offset = -1
        if version >= LEADER_EPOCH_SINCE:
            index, epoch, offset, log_start_offset, max_bytes = _PARTITION_V9.unpack_from(data, position)
            position += _PARTITION_V9.size
        elif version >= LOG_START_OFFSET_SINCE:
            index, offset, log_start_offset, max_bytes = _PARTITION_V5.unpack_from(data, position)
            position += _PARTITION_V5.size
        else:
            index, offset, max_bytes = _PARTITION_V4.unpack_from(data, position)
            position += _PARTITION_V4.size
        partitions.append(FetchPartition(index, epoch, offset, -1, log_start_offset, max_bytes))
    return partitions, position


def _parse_forgotten(data: memoryview, position: int, version: int) -> tuple[list[ForgottenTopic], int]:
    """Parse forgotten topics; most requests have none."""
    if version >= FLEXIBLE_SINCE and data[position] <= 1:
        return [], position + 1
    return at_once(_forgotten_in_steps(data, position, version, []))


def _forgotten_in_steps(
    data: memoryview, position: int, version: int, kept: list[Any]
) -> InSteps[tuple[list[ForgottenTopic], int]]:
    """Parse forgotten topics, which do not exist before v7."""
    flexible = version >= FLEXIBLE_SINCE
    forgotten: list[ForgottenTopic] = []
    if version < SESSIONS_SINCE:
        return forgotten, position
    topic_count, position = read_count(data, position, flexible=flexible)
    elements = _check_elements(topic_count, TOPICS_MAX)
    for number in range(topic_count):
        if number % STEP_ELEMENTS == 0:
            yield STEP_ELEMENTS * HANDLED_BYTES
        name, topic_id, position = _read_key(data, position, version)
        count, position = read_count(data, position, flexible=flexible)
        elements += count
        _check_elements(elements, LED_MAX)
        forgotten.append(ForgottenTopic(name, topic_id, struct.unpack_from(f">{count}i", data, position)))
        position += 4 * count
        if flexible:
            position = skip_tagged_fields(data, position)
    kept += forgotten
    return forgotten, position


def _read_replica_state(data: memoryview, position: int, replica_state: tuple[int, int]) -> tuple[tuple[int, int], int]:
    """Return the replica state in the tagged fields, and the position after the tagged fields.

    If the tagged fields have no replica state, return `replica_state` in its place.
    """
    if not data[position]:
        return replica_state, position + 1
    fields, end = locate_tagged_fields(data, position)
    start, size = fields.get(REPLICA_STATE_TAG, (end, 0))
    return REPLICA_STATE.unpack_from(data, start) if size >= REPLICA_STATE.size else replica_state, end


DIVERGING_EPOCH_TAG: Final = 0
CURRENT_LEADERS_SINCE: Final = 16
CURRENT_LEADER_TAG: Final = 1

RESULT: Final = struct.Struct(">ihqqq")
"""The binary layout of the first fields of FetchResult, from `partition` to `log_start_offset`."""
EPOCH_END: Final = struct.Struct(">iq")
"""An epoch, and its end offset."""

_ONE_RESULT: Final = struct.Struct(">iiBihiB16sBihqqqBi")
"""The start of a v13 response with one result, before the length of the records.

The fields are: size, correlation id, empty tagged fields, throttle time, error, session id, one topic id, one result,
no aborted transactions, and no preferred read replica.
"""
_NO_TAGS_OF_ALL: Final = bytes(3)
"""The end of a response with one result: the empty tagged fields of the partition, the topic and the response."""
"""The encoded length prefix of a compact array with one element: the number of elements plus 1."""
_SIZE_CORRELATION: Final = struct.Struct(">ii")
_THROTTLE: Final = bytes(4)
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
_RESULT_V4: Final = struct.Struct(">ihqq")
_ABORTED: Final = struct.Struct(">qq")
"""The producer id and first offset of an aborted transaction."""
_NULL_ABORTED: Final = b"\xff\xff\xff\xff"
_NULL_ABORTED_NO_REPLICA_V12: Final = b"\0\xff\xff\xff\xff"
"""The encoded bytes of two fields: a null list of aborted transactions, and no preferred read replica."""
_NO_REPLICA: Final = b"\xff\xff\xff\xff"
_DIVERGING_TAG: Final = bytes((1, DIVERGING_EPOCH_TAG, EPOCH_END.size + 1))
"""The bytes before the diverging epoch in a partition's tagged fields.

They are the number of tagged fields (1), the tag, and the size of the value. The value includes a zero byte at its end,
for its own empty tagged fields.
"""


class FetchResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a partition; unknown offsets are -1. `diverging_epoch` is an epoch and its end offset."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileSlice | None
    diverging_epoch: tuple[int, int] | None = None
    leader: CurrentLeader | None = None
    """The current leader, set only if another broker leads or the client's leader epoch is outdated."""
    aborted: Sequence[tuple[int, int]] | None = None
    """The producer ids and first offsets of aborted transactions in `records`; None for read_uncommitted."""


def encode_fetch_response(
    correlation_id: int,
    version: int,
    topics: list[tuple[FetchTopic, list[FetchResult]]],
    session_id: int = 0,
    error: int = 0,
) -> list[Part]:
    """Return the parts of the response frame. The session id 0 means that there is no fetch session (KIP-227)."""
    if version >= TOPIC_IDS_SINCE and len(topics) == 1:
        topic, results = topics[0]
        if len(results) == 1 and _is_plain(results[0]):
            return _encode_one(correlation_id, topic, results[0], session_id, error)
    return at_once(fetch_response_in_steps(correlation_id, version, topics, session_id, error))


def fetch_response_in_steps(
    correlation_id: int,
    version: int,
    topics: list[tuple[FetchTopic, list[FetchResult]]],
    session_id: int = 0,
    error: int = 0,
) -> InSteps[list[Part]]:
    """Encode as `encode_fetch_response` does, in steps of a few topics and results."""
    flexible = version >= FLEXIBLE_SINCE
    no_tags = b"\0" if flexible else b""
    head = first_head = bytearray(_SIZE_CORRELATION.size)
    head += no_tags
    head += _THROTTLE_ERROR_SESSION.pack(0, error, session_id) if version >= SESSIONS_SINCE else _THROTTLE
    head += write_count(len(topics), flexible=flexible)
    parts: list[Part] = [head]
    leaders: list[CurrentLeader] = []
    size, elements = 0, count(1)
    for topic, results in topics:
        if next(elements) % STEP_ELEMENTS == 0:
            yield 0
        head += topic.topic_id or write_name(topic.name or "", flexible=flexible)
        head += write_count(len(results), flexible=flexible)
        for result in results:
            if next(elements) % STEP_ELEMENTS == 0:
                yield 0
            records = result.records
            head += _encode_head(result, version, 0 if records is None else records.length)
            if records is not None:
                size += len(head) + records.length
                head = bytearray()
                parts += (records, head)
            if result.diverging_epoch is not None:
                head += _diverging(result.diverging_epoch, flexible)
            elif result.leader is not None and version >= CURRENT_LEADERS_SINCE:
                head += leader_fields(CURRENT_LEADER_TAG, result.leader)
                leaders.append(result.leader)
            else:
                head += no_tags
        head += no_tags
    head += endpoint_fields(leaders) if leaders else no_tags
    size += len(head)
    if not head:
        parts.pop()
    _SIZE_CORRELATION.pack_into(first_head, 0, size - 4, correlation_id)
    return parts


def _is_plain(result: FetchResult) -> bool:
    return result.diverging_epoch is None and result.leader is None and result.aborted is None


def _encode_one(correlation_id: int, topic: FetchTopic, result: FetchResult, session_id: int, error: int) -> list[Part]:
    """Encode a response with one result and without optional fields, which is the most frequent response."""
    records = result.records
    length = 0 if records is None else records.length
    encoded_length = encode_unsigned_varint(length + 1)
    head = _ONE_RESULT.pack(
        _ONE_RESULT.size - 4 + len(encoded_length) + length + len(_NO_TAGS_OF_ALL),
        correlation_id,
        0,
        0,
        error,
        session_id,
        _ONE,
        topic.topic_id,
        _ONE,
        result.partition,
        result.error,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        0,
        -1,
    )
    if records is None:
        return [bytearray(head + encoded_length + _NO_TAGS_OF_ALL)]
    return [bytearray(head + encoded_length), records, _NO_TAGS_OF_ALL]


def set_throttle_time(response: list[Part], version: int, throttle_ms: int) -> None:
    """Write the throttle time into an encoded response."""
    head = response[0]
    assert isinstance(head, bytearray), "the first buffer of a response must be a bytearray with the header"
    _INT32.pack_into(head, _SIZE_CORRELATION.size + (version >= FLEXIBLE_SINCE), throttle_ms)


def _encode_head(result: FetchResult, version: int, length: int) -> bytes:
    """Encode the fields of a partition up to the length of its records; without records the length is 0, not null."""
    if version < LOG_START_OFFSET_SINCE:
        head = _RESULT_V4.pack(result.partition, result.error, result.high_watermark, result.last_stable_offset)
    else:
        head = RESULT.pack(
            result.partition,
            result.error,
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
        )
    if version >= FLEXIBLE_SINCE:
        return (
            head
            + (_NULL_ABORTED_NO_REPLICA_V12 if result.aborted is None else _aborted_v12(result.aborted))
            + encode_unsigned_varint(length + 1)
        )
    aborted = result.aborted
    if aborted is None:
        head += _NULL_ABORTED
    else:
        head += _INT32.pack(len(aborted)) + b"".join([_ABORTED.pack(*each) for each in aborted])
    return head + (_NO_REPLICA if version >= RACK_SINCE else b"") + _INT32.pack(length)


def _aborted_v12(aborted: Sequence[tuple[int, int]]) -> bytes:
    transactions = b"".join([_ABORTED.pack(*each) + b"\0" for each in aborted])
    return encode_unsigned_varint(len(aborted) + 1) + transactions + _NO_REPLICA


def _diverging(epoch_end: tuple[int, int], flexible: bool) -> bytes:
    """Return the tagged fields with the diverging epoch (tag 0); empty before v12."""
    return _DIVERGING_TAG + EPOCH_END.pack(*epoch_end) + b"\0" if flexible else b""
