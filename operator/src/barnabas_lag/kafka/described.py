"""The members of groups, as their coordinators describe them."""

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from barnabas_core.topic_partition import TopicPartition

STABLE: Final = "Stable"
CONSUMERS: Final = "consumer"
"""The protocol type of consumers. Groups of other types, such as Kafka Connect's, do not assign partitions."""
SHARE_CONSUMERS: Final = "share"
"""The protocol type that stands here for members of share groups, which ShareGroupDescribe does not name."""
KEPT_BYTES_MAX: Final = 32 << 20
"""The largest size of the cache of assignments in bytes, enough for about 280,000 partitions."""
ENTRY_BYTES: Final = 300
PARTITION_BYTES: Final = 112
"""The memory in bytes, as measured, of an assignment in the cache, and of each partition of the assignment."""


class Assignments:
    """A cache of decoded assignments, for many threads.

    `bytes_max` bounds the cache, which drops the least recently used entries.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._kept: OrderedDict[bytes, tuple[TopicPartition, ...] | None] = OrderedDict()
        self.kept_bytes = 0

    def decoded(self, assignment: bytes) -> tuple[TopicPartition, ...] | None:
        """Return the partitions of an encoded assignment, from the cache if it is there; None for another format."""
        with self._lock:
            if assignment in self._kept:
                self._kept.move_to_end(assignment)
                return self._kept[assignment]
        partitions = _decoded(assignment)
        with self._lock:
            if assignment not in self._kept:
                self._kept[assignment] = partitions
                self.kept_bytes += _bytes(assignment, partitions)
            while self.kept_bytes > self._bytes_max:
                self.kept_bytes -= _bytes(*self._kept.popitem(last=False))
        return partitions


def _bytes(assignment: bytes, partitions: Sequence[TopicPartition] | None) -> int:
    return ENTRY_BYTES + len(assignment) + PARTITION_BYTES * len(partitions or ())


def _decoded(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    try:
        decoded = ConsumerProtocolAssignment.decode(assignment) if assignment else None
    except (struct.error, ValueError, IndexError):
        return None
    if decoded is None:
        return ()
    topics = decoded.assigned_partitions
    if topics is None or any(None in (topic.topic, topic.partitions) for topic in topics):
        return None  # The leader of a group may write nulls into any field.
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)


assigned: Final = Assignments(KEPT_BYTES_MAX).decoded
"""The function that decodes an assignment, with one cache for all clusters of this process."""


PartitionsOf = Callable[[Any], tuple[TopicPartition, ...] | None]


def classic_partitions(member: Any) -> tuple[TopicPartition, ...] | None:
    """Return the partitions of a member of a classic group, or None if its assignment has another format."""
    return assigned(member.member_assignment)


class Described(NamedTuple):
    """The state and the protocol type of a group, and its members as in the response.

    `partitions_of` returns the partitions of a member, or None if they are not readable.
    """

    state: str
    protocol_type: str
    members: Sequence[Any]
    partitions_of: PartitionsOf = classic_partitions
    epoch: int | None = None
    """The epoch of the group, or None for a classic group."""

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics with partitions assigned to members, or None if unknown.

        For a share group these are the topics to which members subscribe, because the partitions of a new topic are
        assigned only after their state was made.
        """
        if self.protocol_type == SHARE_CONSUMERS and self.members:
            return frozenset(name for each in self.members for name in each.subscribed_topic_names)
        if self.state != STABLE or self.protocol_type != CONSUMERS:
            return None
        topics: set[str] = set()
        for each in self.members:
            partitions = self.partitions_of(each)
            if partitions is None:
                return None
            topics.update(where.topic for where in partitions)
        return frozenset(topics)
