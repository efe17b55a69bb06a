"""The members of groups, as their coordinators describe them."""

import struct
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from barnabas_core.topic_partition import TopicPartition

STABLE: Final = "Stable"
CONSUMERS: Final = "consumer"
"""The type of the protocol whose assignments are partitions; others are Kafka Connect's, for one."""
KEPT_BYTES_MAX: Final = 32 << 20
"""The bytes that are kept, about 280,000 partitions: from one look to the next most members keep what they had."""
ENTRY_BYTES: Final = 300
PARTITION_BYTES: Final = 112
"""The bytes that an assignment and each of its partitions take, as measured."""


class Described(NamedTuple):
    """State, type of the protocol, and the members as the answer has them."""

    state: str
    protocol_type: str
    members: Sequence[Any]

    @property
    def topics(self) -> frozenset[str] | None:
        """The topics with partitions that members have; None if they are not known."""
        if self.state != STABLE or self.protocol_type != CONSUMERS:
            return None
        topics: set[str] = set()
        for each in self.members:
            partitions = assigned(each.member_assignment)
            if partitions is None:
                return None
            topics.update(where.topic for where in partitions)
        return frozenset(topics)


class Assignments:
    """The assignments of members, decoded once; for many threads.

    `bytes_max` bounds what is kept: the last asked for.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = Lock()
        self._kept: OrderedDict[bytes, tuple[TopicPartition, ...] | None] = OrderedDict()
        self.kept_bytes = 0

    def decoded(self, assignment: bytes) -> tuple[TopicPartition, ...] | None:
        """The partitions; None where they are written in another way."""
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
        return None  # A group's leader may write nulls into any field.
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)


assigned: Final = Assignments(KEPT_BYTES_MAX).decoded
"""The function that decodes an assignment, for all clusters that this process looks at."""
