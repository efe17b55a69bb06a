"""The newest record of each key of a partition: all that loading needs, as a record counts until the next of its key.

A busy group writes the same keys again and again, so what is overwritten is not even decoded. What is left is decoded
in a straight line where it is an offset as it is usually written, else by `records`.
"""

import struct
from typing import Final
from uuid import UUID

from barnabas_broker.coordinators.groups.left_out import LeftOut
from barnabas_broker.coordinators.groups.records import (
    CommittedOffset,
    OffsetKey,
    check_partition,
    decode,
    decode_key,
    decode_offset,
    encode_offset_key,
)
from barnabas_broker.coordinators.groups.tables import GroupTables
from barnabas_broker.wire.key_values import KeyValues
from barnabas_core.topic_partition import TopicPartition

_WITHOUT_TAGS: Final = struct.Struct(">hqibqb")
"""Version, offset, leader epoch, length of the metadata and 1, commit time, number of tags."""
_WITH_TOPIC_ID: Final = struct.Struct(">hqibq3s16s")
_USUAL_VERSION: Final = 4
_NO_METADATA: Final = 1
_NO_TAGS: Final = 0
_TOPIC_ID_FOLLOWS: Final = b"\1\0\x10"
"""One tagged field, its tag, its size."""

_new = tuple.__new__
"""Makes a NamedTuple in half the time."""

_Topic = tuple[dict[TopicPartition, CommittedOffset], str]
"""What all keys of one group and topic have in common: where the offsets go, and the topic's name."""


class Newest:
    """Takes records in the order of the log, then gives the newest of each key to the tables."""

    def __init__(self) -> None:
        self._records: dict[bytes, bytes | None] = {}
        self._topics: dict[bytes, _Topic] = {}
        """By their keys but for the number at the end."""
        self._topic_ids: dict[bytes, UUID] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, key_values: KeyValues) -> None:
        """Later records of a key replace earlier ones."""
        self._records.update(key_values)

    def apply(self, tables: GroupTables, count: int, left_out: LeftOut) -> None:
        """Move so many into the tables. What cannot be decoded is left out, and costs nobody else anything."""
        pop, topics = self._records.popitem, self._topics
        for _ in range(min(count, len(self._records))):
            key, value = pop()
            if value is None:
                continue
            try:
                topic = topics.get(key[:-4]) or self._new_topic(key, value, tables)
                if topic is None:
                    _apply_other(key, value, tables)
                    continue
                offsets, name = topic
                partition = int.from_bytes(key[-4:], "big", signed=True)
                if partition < 0:
                    check_partition(partition)
                offsets[_new(TopicPartition, (name, partition))] = self._offset(value)
            except Exception as error:
                left_out.record(key, error)

    def _new_topic(self, key: bytes, value: bytes, tables: GroupTables) -> _Topic | None:
        """None where it is not the key of an offset, or has more bytes than that."""
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetKey) or len(key) != len(encode_offset_key(decoded)):
            return None
        decode_offset(value)  # What cannot be decoded begins no group.
        topic = self._topics[key[:-4]] = (tables.offsets_of(decoded.group_id), decoded.topic)
        return topic

    def _offset(self, value: bytes) -> CommittedOffset:
        if len(value) == _WITH_TOPIC_ID.size:
            version, offset, epoch, metadata, timestamp_ms, tags, topic_id = _WITH_TOPIC_ID.unpack(value)
            if version == _USUAL_VERSION and metadata == _NO_METADATA and tags == _TOPIC_ID_FOLLOWS:
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


def _apply_other(key: bytes, value: bytes, tables: GroupTables) -> None:
    record = decode(key, value)
    if record is not None:
        tables.apply(record)
