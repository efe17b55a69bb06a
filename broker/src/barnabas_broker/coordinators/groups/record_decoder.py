"""The fast decoder of records of `__consumer_offsets`, used while a partition is loaded.

The fast decoder decodes offset commits in their most frequent format; the module `records` decodes all other records.
A name or topic id that occurs in many records is decoded only once, and is one object in memory.
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
from barnabas_broker.coordinators.modern.records import ModernRecord
from barnabas_broker.coordinators.modern.records import decode as decode_modern

_WITHOUT_TAGS: Final = struct.Struct(">hqibqb")
"""The value of an offset commit with empty metadata and without a topic id.

The fields are the version, offset, leader epoch, length of the metadata plus 1, timestamp and number of tagged fields.
"""
_WITH_TOPIC_ID: Final = struct.Struct(">hqibq3s16s")
_USUAL_VERSION: Final = 4
_NO_METADATA: Final = 1
_NO_TAGS: Final = 0

_new = tuple.__new__
"""The constructor of `tuple`, which creates a NamedTuple in half the time of the NamedTuple's own constructor."""


class RecordDecoder:
    """The decoder for one load of a partition; the decoder caches names and topic ids that many records share."""

    def __init__(self) -> None:
        self._topics: dict[bytes, tuple[str, str]] = {}
        """The group id and topic of decoded record keys, by the encoded record key without its partition number."""
        self._topic_ids: dict[bytes, UUID] = {}

    def decode(self, key: bytes, value: bytes) -> GroupRecord | ModernRecord | None:
        """Return the decoded record, or None if the record is of an unknown kind. Raises MalformedRecord."""
        names = self._topics.get(key[:-4]) or self._new_topic(key)
        if names is None:
            return decode(key, value) or decode_modern(key, value)
        partition = int.from_bytes(key[-4:], "big", signed=True)
        if partition < 0:
            check_partition(partition)
        return _new(GroupRecord, (_new(OffsetKey, (*names, partition)), self._offset(value)))

    def _new_topic(self, key: bytes) -> tuple[str, str] | None:
        """Return the group id and the topic if the key is that of a committed offset, or None for any other key."""
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
