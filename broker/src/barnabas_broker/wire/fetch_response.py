"""Fetch (1), v4 to v18: the encoding of responses, in which slices of segment files follow encoded headers.

v5 adds log start offsets, v7 sessions, and v11 preferred read replicas. v12 is flexible and adds diverging epochs. v13
replaces topic names by topic ids, and v16 adds current leaders.
"""

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from barnabas_broker.wire.current_leader import CurrentLeader, endpoint_fields, leader_fields
from barnabas_broker.wire.fetch import (
    FLEXIBLE_SINCE,
    LOG_START_OFFSET_SINCE,
    RACK_SINCE,
    SESSIONS_SINCE,
    TOPIC_IDS_SINCE,
    FetchTopic,
)
from barnabas_broker.wire.framing import encode_unsigned_varint
from barnabas_broker.wire.parts import FileSlice, Part
from barnabas_broker.wire.strings import write_count, write_name

DIVERGING_EPOCH_TAG: Final = 0
CURRENT_LEADERS_SINCE: Final = 16
CURRENT_LEADER_TAG: Final = 1

RESULT: Final = struct.Struct(">ihqqq")
"""The binary layout of the first fields of FetchResult, from `partition` to `log_start_offset`."""
EPOCH_END: Final = struct.Struct(">iq")
"""An epoch, and its end offset."""

_INT32: Final = struct.Struct(">i")
_ONE_RESULT: Final = struct.Struct(">iiBihiB16sBihqqqBi")
"""The start of a v13 response with one result, before the length of the records.

The fields are: size, correlation id, empty tagged fields, throttle time, error, session id, one topic id, one result,
no aborted transactions, and no preferred read replica.
"""
_NO_TAGS_OF_ALL: Final = bytes(3)
"""The end of a response with one result: the empty tagged fields of the partition, the topic and the response."""
_ONE: Final = 2
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


def tell_throttle_time(response: list[Part], version: int, throttle_ms: int) -> None:
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
