"""Decodes the records of one loading: an offset as it is usually written in a straight line, all else by `records`.

A name or a topic id that many records share is made once, which is faster, and is once in memory.
"""

import struct
from typing import Final
from uuid import UUID

from barnabas_broker.coordinators.groups.records import (
    TOPIC_ID_FOLLOWS,
    CommittedOffset,
    GroupRecord,
    OffsetKey,
    check_partition,
    decode,
    decode_key,
    decode_offset,
    encode_offset_key,
)

_WITHOUT_TAGS: Final = struct.Struct(">hqibqb")
"""Version, offset, leader epoch, length of the metadata and 1, commit time, number of tags."""
_WITH_TOPIC_ID: Final = struct.Struct(">hqibq3s16s")
_USUAL_VERSION: Final = 4
_NO_METADATA: Final = 1
_NO_TAGS: Final = 0

_new = tuple.__new__
"""Makes a NamedTuple in half the time."""


class RecordDecoder:
    """The decoder of one loading; it caches the parts that many keys and values share."""

    def __init__(self) -> None:
        self._topics: dict[bytes, tuple[str, str]] = {}
        """Group and topic, by their keys but for the number at the end."""
        self._topic_ids: dict[bytes, UUID] = {}

    def decode(self, key: bytes, value: bytes) -> GroupRecord | None:
        """The record; None for kinds that are not the classic groups'. MalformedRecord."""
        names = self._topics.get(key[:-4]) or self._new_topic(key)
        if names is None:
            return decode(key, value)
        partition = int.from_bytes(key[-4:], "big", signed=True)
        if partition < 0:
            check_partition(partition)
        return _new(GroupRecord, (_new(OffsetKey, (*names, partition)), self._offset(value)))

    def _new_topic(self, key: bytes) -> tuple[str, str] | None:
        """Return group and topic of an offset's key; None if it is another key, or has more bytes than one."""
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetKey) or len(key) != len(encode_offset_key(decoded)):
            return None
        names = self._topics[key[:-4]] = (decoded.group_id, decoded.topic)
        return names

    def _offset(self, value: bytes) -> CommittedOffset:
        if len(value) == _WITH_TOPIC_ID.size:
            version, offset, epoch, metadata, timestamp_ms, tags, topic_id = _WITH_TOPIC_ID.unpack(value)
            if version == _USUAL_VERSION and metadata == _NO_METADATA and tags == TOPIC_ID_FOLLOWS:
                known = self._topic_ids.get(topic_id) or self._new_topic_id(topic_id)
                return _new(CommittedOffset, (offset, epoch, "", timestamp_ms, None, known))
        elif len(value) == _WITHOUT_TAGS.size:
            version, offset, epoch, metadata, timestamp_ms, tags = _WITHOUT_TAGS.unpack(value)
            if version == _USUAL_VERSION and metadata == _NO_METADATA and tags == _NO_TAGS:
                return _new(CommittedOffset, (offset, epoch, "", timestamp_ms, None, None))
        return decode_offset(value)

    def _new_topic_id(self, data: bytes) -> UUID:
        topic_id = self._topic_ids[data] = UUID(bytes=data)
        return topic_id
