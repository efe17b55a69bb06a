"""Fetch (1), v4 to v18: the parsing of requests; `fetch_response` has the responses.

v5 adds log start offsets, v7 sessions, v9 leader epochs and v11 racks. v12 is flexible and adds the last fetched epoch.
v13 replaces topic names by topic ids, v15 moves the replica id to a tagged field, and v17 and v18 add tagged fields of
followers.
"""

import struct
from typing import Final

import msgspec

from barnabas_broker.wire.apis import FETCHED_MAX
from barnabas_broker.wire.framing import (
    BROKEN_BYTES,
    MalformedRequest,
    locate_tagged_fields,
    skip_tagged_fields,
)
from barnabas_broker.wire.strings import (
    UUID_BYTES,
    read_count,
    read_name,
)

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
TOPICS_MAX: Final = 20_000
"""The maximum number of topics in a Fetch request; its partitions are counted beside FETCHED_MAX."""
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
        request, position = _parse(data, start, version)
    except BROKEN_BYTES as error:
        raise MalformedRequest(f"Fetch: {error}") from None
    if position > end:
        raise MalformedRequest(f"Fetch: the request has {end - start} bytes, but its fields take {position - start}")
    return request


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
    after_head = position + len(REPLICA_STATE_HEAD)
    if flexible and data[position:after_head] == REPLICA_STATE_HEAD:
        replica_id, replica_epoch = REPLICA_STATE.unpack_from(data, after_head)
        position = after_head + REPLICA_STATE_BYTES
    else:
        if version >= RACK_SINCE:  # Skip the rack, because consumers fetch from leaders only.
            _, position = read_name(data, position, flexible=flexible)
        if flexible:
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
        _check_elements(elements, FETCHED_MAX)
        if flexible:
            partitions, position = _parse_flexible_partitions(data, position, count)
            position = skip_tagged_fields(data, position) if data[position] else position + 1
        else:
            partitions, position = _parse_classic_partitions(data, position, count, version)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


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
    """Parse forgotten topics, which do not exist before v7."""
    flexible = version >= FLEXIBLE_SINCE
    forgotten: list[ForgottenTopic] = []
    if version < SESSIONS_SINCE:
        return forgotten, position
    topic_count, position = read_count(data, position, flexible=flexible)
    elements = _check_elements(topic_count, TOPICS_MAX)
    for _ in range(topic_count):
        name = topic_id = None
        if version >= TOPIC_IDS_SINCE:
            topic_id = bytes(data[position : position + UUID_BYTES])
            position += UUID_BYTES
        else:
            name, position = read_name(data, position, flexible=flexible)
        count, position = read_count(data, position, flexible=flexible)
        elements += count
        _check_elements(elements, FETCHED_MAX)
        forgotten.append(ForgottenTopic(name, topic_id, struct.unpack_from(f">{count}i", data, position)))
        position += 4 * count
        if flexible:
            position = skip_tagged_fields(data, position)
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
