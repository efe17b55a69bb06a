"""Fetch (1), v4 to v18: requests parsed in place, responses as heads of a few bytes between slices of files.

v5 brings log start offsets, v7 sessions, v9 leader epochs, v11 racks; v12 is flexible with the last fetched epoch, v13
has topic ids for names, v15 moves the replica's id into a tagged field, v16 brings current leaders, v17 and v18
tagged fields of followers.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from barnabas_broker.wire.current_leader import CurrentLeader, endpoint_fields, leader_fields
from barnabas_broker.wire.framing import (
    BROKEN_BYTES,
    ELEMENTS_MAX,
    MalformedRequest,
    encode_unsigned_varint,
    locate_tagged_fields,
    skip_tagged_fields,
)
from barnabas_broker.wire.parts import FileSlice, Part
from barnabas_broker.wire.strings import (
    UUID_BYTES,
    read_count,
    read_name,
    write_count,
    write_name,
)

FLEXIBLE_SINCE: Final = 12
LOG_START_OFFSET_SINCE: Final = 5
SESSIONS_SINCE: Final = 7
LEADER_EPOCH_SINCE: Final = 9
RACK_SINCE: Final = 11
TOPIC_IDS_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
REPLICA_STATE_TAG: Final = 1
DIVERGING_EPOCH_TAG: Final = 0
CURRENT_LEADERS_SINCE: Final = 16
CURRENT_LEADER_TAG: Final = 1

LIMITS: Final = struct.Struct(">iiib")
"""max_wait_ms, min_bytes, max_bytes, isolation_level."""
SESSION: Final = struct.Struct(">ii")
"""The session id and epoch."""
PARTITION: Final = struct.Struct(">iiqiqi")
"""The fields of FetchPartition, as in flexible versions."""
REPLICA_STATE: Final = struct.Struct(">iq")
"""The follower's id and broker epoch (KIP-903)."""
RESULT: Final = struct.Struct(">ihqqq")
"""The fields of FetchResult up to `log_start_offset`."""
EPOCH_END: Final = struct.Struct(">iq")
"""An epoch and its end offset."""

_INT32: Final = struct.Struct(">i")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_SIZE_CORRELATION: Final = struct.Struct(">ii")
_THROTTLE: Final = bytes(4)
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
_RESULT_V4: Final = struct.Struct(">ihqq")
_ABORTED: Final = struct.Struct(">qq")
"""The producer id and first offset."""
_NULL_ABORTED: Final = b"\xff\xff\xff\xff"
_NULL_ABORTED_NO_REPLICA_V12: Final = b"\0\xff\xff\xff\xff"
"""Null for the aborted transactions, and no preferred read replica."""
_NO_REPLICA: Final = b"\xff\xff\xff\xff"
_DIVERGING_TAG: Final = bytes((1, DIVERGING_EPOCH_TAG, EPOCH_END.size + 1))
"""The count of one tagged field, its tag, and its size with the byte for its own (no) tagged fields."""


class FetchPartition(msgspec.Struct, frozen=True, gc=False):
    """The offset and size to fetch of a partition; -1 for fields that the client does not know."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(msgspec.Struct, frozen=True, gc=False):
    """A topic of a request: `name` up to v12, `topic_id` as bytes from v13 on; the other one is None."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchPartition]


class ForgottenTopic(msgspec.Struct, frozen=True, gc=False):
    """The partitions that leave an incremental session (KIP-227); name and id as in FetchTopic."""

    name: str | None
    topic_id: bytes | None
    partitions: tuple[int, ...]


class FetchRequest(msgspec.Struct, frozen=True, gc=False):
    """A Fetch request. `replica_id` is -1 for a consumer."""

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


class FetchResult(msgspec.Struct, frozen=True, gc=False):
    """The result for a partition; offsets are -1 with an error. `diverging_epoch` is an epoch and its end offset."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileSlice | None
    diverging_epoch: tuple[int, int] | None = None
    leader: CurrentLeader | None = None
    """The current leader, if it is another broker or the client's leader epoch is outdated."""
    aborted: Sequence[tuple[int, int]] | None = None
    """Producer ids and first offsets of the transactions whose records in `records` do not count; for read_committed.
    """


def parse_fetch(buffer: memoryview, start: int, end: int, version: int) -> FetchRequest:
    """Parse the body in `buffer[start:end]`, ignoring bytes behind it. Raises MalformedRequest."""
    data = buffer[:end]
    try:
        request, position = _parse(data, start, version)
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"Fetch: {error}") from None
    if position > end:
        raise MalformedRequest(f"Fetch: the request has {end - start} bytes, its fields {position - start}")
    return request


def lower_bytes(buffer: memoryview, start: int, version: int, bytes_max: int) -> None:
    """Limit `min_bytes` and `max_bytes` of a parsed request in its buffer."""
    position = start if version >= REPLICA_STATE_SINCE else start + _INT32.size
    max_wait_ms, min_bytes, max_bytes, isolation_level = LIMITS.unpack_from(buffer, position)
    lower = min(min_bytes, bytes_max), min(max_bytes, bytes_max)
    LIMITS.pack_into(buffer, position, max_wait_ms, *lower, isolation_level)


def _parse(data: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    flexible = version >= FLEXIBLE_SINCE
    replica_id, replica_epoch, session_id, session_epoch = -1, -1, 0, -1
    if version < REPLICA_STATE_SINCE:
        (replica_id,) = _INT32.unpack_from(data, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = LIMITS.unpack_from(data, position)
    position += LIMITS.size
    if version >= SESSIONS_SINCE:
        session_id, session_epoch = SESSION.unpack_from(data, position)
        position += SESSION.size
    topics, position = _parse_topics(data, position, version)
    forgotten, position = _parse_forgotten(data, position, version)
    if version >= RACK_SINCE:  # No replica is preferred by its rack.
        _, position = read_name(data, position, flexible=flexible)
    if flexible and not data[position]:
        position += 1
    elif flexible:
        (replica_id, replica_epoch), position = _read_replica_state(data, position, (replica_id, replica_epoch))
    request = FetchRequest(
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
    return request, position


def _parse_topics(data: memoryview, position: int, version: int) -> tuple[list[FetchTopic], int]:
    flexible = version >= FLEXIBLE_SINCE
    topic_count, position = read_count(data, position, flexible=flexible)
    elements = topic_count
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
        _check_elements(elements)
        if flexible:
            partitions, position = _parse_flexible_partitions(data, position, count)
            position = skip_tagged_fields(data, position) if data[position] else position + 1
        else:
            partitions, position = _parse_classic_partitions(data, position, count, version)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


def _check_elements(elements: int) -> None:
    if elements > ELEMENTS_MAX:
        raise MalformedRequest(f"{elements} partitions and topics; {ELEMENTS_MAX} are allowed")


def _parse_flexible_partitions(data: memoryview, position: int, count: int) -> tuple[list[FetchPartition], int]:
    """Parse partitions. Only followers send tagged fields, so one byte is looked at to skip them."""
    partitions = []
    for _ in range(count):
        partitions.append(FetchPartition(*PARTITION.unpack_from(data, position)))
        position += PARTITION.size
        position = skip_tagged_fields(data, position) if data[position] else position + 1
    return partitions, position


def _parse_classic_partitions(
    data: memoryview, position: int, count: int, version: int
) -> tuple[list[FetchPartition], int]:
    """Parse partitions; fields that a version does not have are -1."""
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
    """Parse forgotten topics, which do not exist before v7."""
    flexible = version >= FLEXIBLE_SINCE
    forgotten: list[ForgottenTopic] = []
    if version < SESSIONS_SINCE:
        return forgotten, position
    topic_count, position = read_count(data, position, flexible=flexible)
    elements = topic_count
    for _ in range(topic_count):
        name = topic_id = None
        if version >= TOPIC_IDS_SINCE:
            topic_id = bytes(data[position : position + UUID_BYTES])
            position += UUID_BYTES
        else:
            name, position = read_name(data, position, flexible=flexible)
        count, position = read_count(data, position, flexible=flexible)
        elements += count
        _check_elements(elements)
        forgotten.append(ForgottenTopic(name, topic_id, struct.unpack_from(f">{count}i", data, position)))
        position += 4 * count
        if flexible:
            position = skip_tagged_fields(data, position)
    return forgotten, position


def _read_replica_state(data: memoryview, position: int, replica_state: tuple[int, int]) -> tuple[tuple[int, int], int]:
    """The follower's id and epoch, if they are there (v15); the cluster id and unknown fields are passed over."""
    fields, end = locate_tagged_fields(data, position)
    start, size = fields.get(REPLICA_STATE_TAG, (end, 0))
    return REPLICA_STATE.unpack_from(data, start) if size >= REPLICA_STATE.size else replica_state, end


def encode_fetch_response(
    correlation_id: int,
    version: int,
    topics: list[tuple[FetchTopic, list[FetchResult]]],
    session_id: int = 0,
    error: int = 0,
) -> list[Part]:
    """The framed response: the results as they are given. Session id 0 declines a session (KIP-227)."""
    flexible = version >= FLEXIBLE_SINCE
    no_tags = b"\0" if flexible else b""
    head = first_head = bytearray(_SIZE_CORRELATION.size)
    head += no_tags
    head += _THROTTLE_ERROR_SESSION.pack(0, error, session_id) if version >= SESSIONS_SINCE else _THROTTLE
    head += write_count(len(topics), flexible=flexible)
    parts: list[Part] = [head]
    leaders: list[CurrentLeader] = []
    size = 0
    for topic, results in topics:
        head += topic.topic_id or write_name(topic.name or "", flexible=flexible)
        head += write_count(len(results), flexible=flexible)
        for result in results:
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


def tell_throttle_time(response: list[Part], version: int, throttle_ms: int) -> None:
    """Put the time into an encoded response."""
    head = response[0]
    assert isinstance(head, bytearray), "a response begins with its header"
    _INT32.pack_into(head, _SIZE_CORRELATION.size + (version >= FLEXIBLE_SINCE), throttle_ms)


def _encode_head(result: FetchResult, version: int, length: int) -> bytes:
    """All of a partition's fields up to the length of its records; `records` of no length rather than null."""
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
    """Return the tagged fields with the diverging epoch, tag 0; nothing before v12."""
    return _DIVERGING_TAG + EPOCH_END.pack(*epoch_end) + b"\0" if flexible else b""
