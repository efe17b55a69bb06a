"""A consumer group as a look at the brokers found it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag
from barnabas_lag.evaluation.readings import WITHOUT_MEMBERS, Consumer

NOT_FOUND: Final = "NotFound"
"""Nobody has joined or committed: Kafka makes a group when somebody does."""
NAMED_MAX: Final = 5
"""Topics that a condition names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """`members` and `consumers` are what its coordinator tells; None and nothing where it tells no members."""

    state: str
    members: int | None = None
    consumers: tuple[Consumer, ...] = ()
    lags: GroupLags
    """In all partitions of topics that it has committed to, where their leaders tell the ends."""
    silent: tuple[TopicPartition, ...] = ()
    """The others of these topics: how far it is behind there, nobody knows now."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """How many partitions each topic has that it has committed to, or that its members have."""
    held_back: int = 0
    """The part of the lag that open transactions keep from consumers of committed records."""
    topics_read: frozenset[str] | None = None
    """Those that its members read; None where it has no members, or they do not tell."""

    @property
    def is_there(self) -> bool:
        """Whether anybody has joined or committed."""
        return self.state != NOT_FOUND

    @property
    def has_members(self) -> bool:
        """Whether somebody reads for it now: then its offsets are its members'."""
        return self.state not in WITHOUT_MEMBERS and self.is_there

    def is_read(self, topic: str) -> bool:
        """True if the topic counts for objective and scaling: where nobody tells what the group reads, each does."""
        return self.topics_read is None or topic in self.topics_read

    @property
    def counted(self) -> Mapping[TopicPartition, PartitionLag]:
        """The lag in all topics that are read."""
        return {where: each for where, each in self.lags.partitions.items() if self.is_read(where.topic)}

    @property
    def not_read(self) -> str:
        """What is said of topics with committed offsets that no member reads any more; empty where there are none."""
        topics = sorted({where.topic for where in self.lags.partitions if not self.is_read(where.topic)})
        more = f" and {len(topics) - NAMED_MAX} more" if len(topics) > NAMED_MAX else ""
        return (
            f"not counted, because no member reads it any more: {', '.join(topics[:NAMED_MAX])}{more}" if topics else ""
        )
