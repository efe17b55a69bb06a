"""What coordinators tell of groups' members."""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from barnabas_core.topic_partition import TopicPartition

STABLE: Final = "Stable"
CONSUMERS: Final = "consumer"
"""The type of the protocol whose assignments are partitions; others are Kafka Connect's, for one."""
ASSIGNMENTS_KEPT: Final = 10_000
"""From one look to the next most members have what they had."""


class Described(NamedTuple):
    """State, type of the protocol, and the members as the answer has them."""

    state: str
    protocol_type: str
    members: Sequence[Any]

    @property
    def topics(self) -> frozenset[str] | None:
        """Those of which members have partitions; None where that is not known."""
        if self.state != STABLE or self.protocol_type != CONSUMERS:
            return None
        topics: set[str] = set()
        for each in self.members:
            partitions = assigned(each.member_assignment)
            if partitions is None:
                return None
            topics.update(where.topic for where in partitions)
        return frozenset(topics)


@lru_cache(ASSIGNMENTS_KEPT)
def assigned(assignment: bytes) -> tuple[TopicPartition, ...] | None:
    """What a member has; None where that is written in another way."""
    try:
        decoded = ConsumerProtocolAssignment.decode(assignment) if assignment else None
    except (struct.error, ValueError, IndexError):
        return None
    if decoded is None:
        return ()
    topics = decoded.assigned_partitions
    if topics is None or any(None in (topic.topic, topic.partitions) for topic in topics):
        return None  # A group's leader may write anything, and the decoder takes null for each of them.
    return tuple(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions)
