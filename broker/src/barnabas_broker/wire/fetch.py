"""Fetch (1), v4 to v18: requests parsed in place, responses as heads of a few bytes between slices of files.

v5 brings log start offsets, v7 sessions, v9 leader epochs, v11 racks; v12 is flexible with the last fetched epoch, v13
has topic ids for names, v15 moves the replica's id into a tagged field, v17 and v18 bring tagged fields of followers.
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
from barnabas_broker.wire.parts import FileSlice, Part
from barnabas_broker.wire.strings import (
    read_count,
    read_name,
    read_topic_id,
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

_INT32: Final = struct.Struct(">i")
_LIMITS: Final = struct.Struct(">iiib")
"""max_wait_ms, min_bytes, max_bytes, isolation_level."""
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")
_ERROR_SESSION: Final = struct.Struct(">hi")
_RESULT_V4: Final = struct.Struct(">ihqqi")
_RESULT_V5: Final = struct.Struct(">ihqqqi")
_RESULT_V11: Final = struct.Struct(">ihqqqii")
_RESULT_V12: Final = struct.Struct(">ihqqqbi")
_EPOCH_END: Final = struct.Struct(">iq")
_NO_TRANSACTIONS: Final = 0
_NO_TRANSACTIONS_COMPACT: Final = 1
_NO_PREFERRED_REPLICA: Final = -1
_DIVERGING_EPOCH_BYTES: Final = 13


class FetchPartition(NamedTuple):
    """From where and how much of one partition; -1 where the client does not know."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchTopic(NamedTuple):
    """`name` up to v12, `topic_id` from v13 on; the other one is None."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    """What to read. `replica_id` is -1 for a consumer."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]


class FetchResult(NamedTuple):
    """What there is for one partition; offsets are -1 with an error. `diverging_epoch`: an epoch and its end offset."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileSlice | None
    diverging_epoch: tuple[int, int] | None = None


def parse_fetch(buffer: memoryview, start: int, end: int, version: int) -> FetchRequest:
    """The body in `buffer[start:end]`; MalformedRequest unless it is one, to the last byte."""
    data = buffer[:end]
    try:
        request, position = _parse(data, start, version)
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"Fetch: {error}") from None
    if position != end:
        raise MalformedRequest(f"Fetch: the request has {end - start} bytes, its fields {position - start}")
    return request


def _parse(data: memoryview, position: int, version: int) -> tuple[FetchRequest, int]:
    flexible = version >= FLEXIBLE_SINCE
    replica_id, replica_epoch, session_id, session_epoch = -1, -1, 0, -1
    if version < REPLICA_STATE_SINCE:
        (replica_id,) = _INT32.unpack_from(data, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(data, position)
    position += _LIMITS.size
    if version >= SESSIONS_SINCE:
        session_id, session_epoch = _SESSION.unpack_from(data, position)
        position += _SESSION.size
    count, position = read_count(data, position, flexible=flexible)
    topics = []
    for _ in range(count):
        topic, position = _parse_topic(data, position, version)
        topics.append(topic)
    position = _skip_forgotten_and_rack(data, position, version)
    if flexible:
        replica_state, position = _read_tagged_fields(data, position, version)
        if replica_state is not None:
            replica_id, replica_epoch = replica_state
    request = FetchRequest(
        replica_id, replica_epoch, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics
    )
    return request, position


def _parse_topic(data: memoryview, position: int, version: int) -> tuple[FetchTopic, int]:
    flexible = version >= FLEXIBLE_SINCE
    name, topic_id = None, None
    if version >= TOPIC_IDS_SINCE:
        topic_id, position = read_topic_id(data, position)
    else:
        name, position = read_name(data, position, flexible=flexible)
    count, position = read_count(data, position, flexible=flexible)
    partitions = []
    for _ in range(count):
        partition, position = _parse_partition(data, position, version)
        partitions.append(partition)
    if flexible:
        position = skip_tagged_fields(data, position)
    return FetchTopic(name, topic_id, partitions), position


def _parse_partition(data: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    if version >= FLEXIBLE_SINCE:
        partition = FetchPartition._make(_PARTITION_V12.unpack_from(data, position))
        return partition, skip_tagged_fields(data, position + _PARTITION_V12.size)
    if version >= LEADER_EPOCH_SINCE:
        index, epoch, offset, log_start, max_bytes = _PARTITION_V9.unpack_from(data, position)
        return FetchPartition(index, epoch, offset, -1, log_start, max_bytes), position + _PARTITION_V9.size
    if version >= LOG_START_OFFSET_SINCE:
        index, offset, log_start, max_bytes = _PARTITION_V5.unpack_from(data, position)
        return FetchPartition(index, -1, offset, -1, log_start, max_bytes), position + _PARTITION_V5.size
    index, offset, max_bytes = _PARTITION_V4.unpack_from(data, position)
    return FetchPartition(index, -1, offset, -1, -1, max_bytes), position + _PARTITION_V4.size


def _skip_forgotten_and_rack(data: memoryview, position: int, version: int) -> int:
    """Nothing is forgotten without sessions, and no replica is preferred by its rack."""
    flexible = version >= FLEXIBLE_SINCE
    if version >= SESSIONS_SINCE:
        count, position = read_count(data, position, flexible=flexible)
        for _ in range(count):
            if version >= TOPIC_IDS_SINCE:
                _, position = read_topic_id(data, position)
            else:
                _, position = read_name(data, position, flexible=flexible)
            partitions, position = read_count(data, position, flexible=flexible)
            position += 4 * partitions
            if flexible:
                position = skip_tagged_fields(data, position)
    if version >= RACK_SINCE:
        _, position = read_name(data, position, flexible=flexible)
    return position


def _read_tagged_fields(data: memoryview, position: int, version: int) -> tuple[tuple[int, int] | None, int]:
    """The follower's id and epoch, if they are there; the cluster id and unknown fields are passed over."""
    if version < REPLICA_STATE_SINCE or data[position] == 0:
        return None, skip_tagged_fields(data, position)
    replica_state = None
    count, position = read_unsigned_varint(data, position)
    for _ in range(count):
        tag, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        if tag == REPLICA_STATE_TAG:
            replica_state = _REPLICA_STATE.unpack_from(data, position)
        position += size
    return replica_state, position


def encode_fetch_response(
    correlation_id: int, version: int, topics: list[tuple[FetchTopic, list[FetchResult]]]
) -> list[Part]:
    """The framed response: a result for every partition, in the order of the request; session id 0 (KIP-227)."""
    flexible = version >= FLEXIBLE_SINCE
    head = first_head = bytearray(8)
    if flexible:
        head += b"\0"  # The header's tagged fields.
    head += _INT32.pack(0)
    if version >= SESSIONS_SINCE:
        head += _ERROR_SESSION.pack(0, 0)
    head += write_count(len(topics), flexible=flexible)
    parts: list[Part] = [head]
    size = 0
    for topic, results in topics:
        head += topic.topic_id.bytes if topic.topic_id is not None else write_name(topic.name or "", flexible=flexible)
        head += write_count(len(results), flexible=flexible)
        for result in results:
            head += _encode_head(result, version)
            if result.records is not None:
                size += len(head) + result.records.length
                head = bytearray()
                parts += (result.records, head)
            if flexible:
                head += _encode_tagged_fields(result)
        if flexible:
            head += b"\0"
    if flexible:
        head += b"\0"
    size += len(head)
    if not head:
        parts.pop()
    _SESSION.pack_into(first_head, 0, size - 4, correlation_id)
    return parts


def _encode_head(result: FetchResult, version: int) -> bytes:
    """All of a partition's fields up to the length of its records."""
    length = 0 if result.records is None else result.records.length
    fixed = result[:5]
    if version >= FLEXIBLE_SINCE:
        head = _RESULT_V12.pack(*fixed, _NO_TRANSACTIONS_COMPACT, _NO_PREFERRED_REPLICA)
        return head + encode_unsigned_varint(length + 1)
    if version >= RACK_SINCE:
        return _RESULT_V11.pack(*fixed, _NO_TRANSACTIONS, _NO_PREFERRED_REPLICA) + _INT32.pack(length)
    if version >= LOG_START_OFFSET_SINCE:
        return _RESULT_V5.pack(*fixed, _NO_TRANSACTIONS) + _INT32.pack(length)
    return _RESULT_V4.pack(*fixed[:4], _NO_TRANSACTIONS) + _INT32.pack(length)


def _encode_tagged_fields(result: FetchResult) -> bytes:
    if result.diverging_epoch is None:
        return b"\0"
    return bytes((1, 0, _DIVERGING_EPOCH_BYTES)) + _EPOCH_END.pack(*result.diverging_epoch) + b"\0"
