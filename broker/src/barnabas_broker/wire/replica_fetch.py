"""The follower's side of Fetch (1) v17: the encoding of requests, and the parsing of responses.

The leader's side is in `fetch`. Requests have topic ids, the replica state in a tagged field (KIP-903) and fetch
sessions (KIP-227); responses may have diverging epochs (KIP-595). Tagged fields that only KRaft followers need are not
sent.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.wire.fetch import (
    CURRENT_LEADER_TAG,
    DIVERGING_EPOCH_TAG,
    EPOCH_END,
    LIMITS,
    PARTITION,
    REPLICA_STATE,
    REPLICA_STATE_HEAD,
    RESULT,
    SESSION,
    FetchPartition,
)
from barnabas_broker.wire.framing import (
    BROKEN_BYTES,
    FETCH,
    UUID_BYTES,
    MalformedRequest,
    encode_unsigned_varint,
    locate_tagged_fields,
    read_count,
    read_unsigned_varint,
    skip_tagged_fields,
)

VERSION: Final = 17
READ_UNCOMMITTED: Final = 0

_HEADER: Final = struct.Struct(">ihhih")
"""The start of a request: the request's size, API key, version, correlation id, and the length of the client id."""
_NO_TAGS: Final = b"\0"
_ANSWER: Final = struct.Struct(">iBihi")
"""The start of a response: correlation id, empty tagged fields, throttle_time_ms, error code and session id."""
_ABORTED_BYTES: Final = 16
_PREFERRED_REPLICA_BYTES: Final = 4
_LEADER: Final = struct.Struct(">ii")


class MalformedResponse(Exception):
    """The error for bytes that are not a valid Fetch response; the connection to the broker is closed."""


class ReplicaFetch(NamedTuple):
    """The fields of a request except for its partitions; `broker_epoch` is the follower's (KIP-903)."""

    client_id: str
    broker_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int


class FetchedPartition(msgspec.Struct, frozen=True, gc=False):
    """The leader's result for one partition; `records` is a slice of the response, and may end in an incomplete batch.

    With OFFSET_OUT_OF_RANGE `last_stable_offset` is the leader's log end offset.
    """

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: memoryview
    diverging_epoch: tuple[int, int] | None
    """The leader's largest epoch up to the follower's epoch, and that epoch's end offset in the leader's log."""
    current_leader: tuple[int, int] | None
    """The broker id and the leader epoch of the current leader, if another broker leads."""


class ReplicaFetchResponse(msgspec.Struct, frozen=True, gc=False):
    """A Fetch response, which has only partitions with new records or offsets, a diverging epoch or an error."""

    correlation_id: int
    error: int
    session_id: int
    topics: list[tuple[bytes, list[FetchedPartition]]]


def encode_replica_fetch(
    correlation_id: int,
    fetch: ReplicaFetch,
    topics: Mapping[bytes, Sequence[FetchPartition]],
    forgotten: Mapping[bytes, Sequence[int]],
) -> bytearray:
    """Return the frame of a request."""
    client_id = fetch.client_id.encode()
    frame = bytearray(_HEADER.size)
    frame += client_id
    frame += _NO_TAGS
    frame += LIMITS.pack(fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes, READ_UNCOMMITTED)
    frame += SESSION.pack(fetch.session_id, fetch.session_epoch)
    frame += encode_unsigned_varint(len(topics) + 1)
    for topic_id, partitions in topics.items():
        frame += topic_id
        frame += encode_unsigned_varint(len(partitions) + 1)
        for each in partitions:
            frame += PARTITION.pack(
                each.partition,
                each.current_leader_epoch,
                each.fetch_offset,
                each.last_fetched_epoch,
                each.log_start_offset,
                each.max_bytes,
            )
            frame += _NO_TAGS
        frame += _NO_TAGS
    frame += encode_unsigned_varint(len(forgotten) + 1)
    for topic_id, indexes in forgotten.items():
        frame += topic_id
        frame += encode_unsigned_varint(len(indexes) + 1)
        frame += struct.pack(f">{len(indexes)}iB", *indexes, 0)
    frame += REPLICA_STATE_HEAD + REPLICA_STATE.pack(fetch.broker_id, fetch.broker_epoch) + _NO_TAGS
    _HEADER.pack_into(frame, 0, len(frame) - 4, FETCH, VERSION, correlation_id, len(client_id))
    return frame


def parse_replica_fetch_response(frame: memoryview) -> ReplicaFetchResponse:
    """Parse a response without its size; the records are slices of `frame`. Raises MalformedResponse."""
    try:
        return _parse(frame)
    except (*BROKEN_BYTES, MalformedRequest) as error:
        raise MalformedResponse(f"Fetch response: {error}") from None


def _parse(data: memoryview) -> ReplicaFetchResponse:
    correlation_id, tagged_fields, _, error, session_id = _ANSWER.unpack_from(data, 0)
    if tagged_fields:
        raise MalformedResponse("Fetch response: the header has unexpected tagged fields")
    position = _ANSWER.size
    topic_count, position = read_count(data, position, flexible=True)
    topics = []
    for _ in range(topic_count):
        topic_id = bytes(data[position : position + UUID_BYTES])
        count, position = read_count(data, position + UUID_BYTES, flexible=True)
        partitions = []
        for _ in range(count):
            partition, position = _parse_partition(data, position)
            partitions.append(partition)
        position = skip_tagged_fields(data, position) if data[position] else position + 1
        topics.append((topic_id, partitions))
    if data[position]:
        skip_tagged_fields(data, position)
    return ReplicaFetchResponse(correlation_id, error, session_id, topics)


def _parse_partition(data: memoryview, position: int) -> tuple[FetchedPartition, int]:
    index, error, high_watermark, stable, start = RESULT.unpack_from(data, position)
    position += RESULT.size
    aborted, position = read_count(data, position, flexible=True)
    for _ in range(aborted):
        position = skip_tagged_fields(data, position + _ABORTED_BYTES)
    length, position = read_unsigned_varint(data, position + _PREFERRED_REPLICA_BYTES)
    end = position + max(length - 1, 0)
    records = data[position:end]
    if end > len(data):
        raise MalformedResponse(f"Fetch response: the records end {end - len(data)} bytes after the response")
    if data[end] == 0:
        diverging, leader, end = None, None, end + 1
    else:
        diverging, leader, end = _parse_tagged_fields(data, end)
    result = FetchedPartition(index, error, high_watermark, stable, start, records, diverging, leader)
    return result, end


def _parse_tagged_fields(data: memoryview, position: int) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    """Return the diverging epoch, the current leader, and the position after the tagged fields."""
    fields, end = locate_tagged_fields(data, position)
    diverging = leader = None
    if DIVERGING_EPOCH_TAG in fields:
        diverging = EPOCH_END.unpack_from(data, fields[DIVERGING_EPOCH_TAG][0])
    if CURRENT_LEADER_TAG in fields:
        leader = _LEADER.unpack_from(data, fields[CURRENT_LEADER_TAG][0])
    return diverging, leader, end
