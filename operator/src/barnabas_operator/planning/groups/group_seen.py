"""The observation of a consumer group at one look at the brokers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag
from barnabas_lag.evaluation.readings import WITHOUT_MEMBERS, Consumer

NOT_FOUND: Final = "NotFound"
"""The state of a group before its first join or commit, with which Kafka creates it."""
NAMED_MAX: Final = 5
"""The number of topics that a condition names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """A group as observed. `members` and `consumers` come from its coordinator; None and () if it reports none."""

    state: str
    members: int | None = None
    consumers: tuple[Consumer, ...] = ()
    lags: GroupLags
    """The lag in all partitions of committed topics whose leaders report the ends of the log."""
    silent: tuple[TopicPartition, ...] = ()
    """The other partitions of these topics, whose lag is unknown."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic that has committed offsets or members assigned."""
    held_back: int = 0
    """The records of the lag that open transactions hide from consumers with isolation.level=read_committed."""
    topics_read: frozenset[str] | None = None
    """The topics that its members read; None if it has no members, or they do not report them."""

    @property
    def is_there(self) -> bool:
        """True if the group has members or committed offsets."""
        return self.state != NOT_FOUND

    @property
    def has_members(self) -> bool:
        """True if the group has members, which alone may commit its offsets."""
        return self.state not in WITHOUT_MEMBERS and self.is_there

    def is_read(self, topic: str) -> bool:
        """True if the topic counts for objective and scaling; each topic does if `topics_read` is None."""
        return self.topics_read is None or topic in self.topics_read

    @property
    def counted(self) -> Mapping[TopicPartition, PartitionLag]:
        """Return the lag of the partitions of all topics that are read."""
        return {where: each for where, each in self.lags.partitions.items() if self.is_read(where.topic)}

    @property
    def not_read(self) -> str:
        """Return the message about topics with committed offsets that no member reads any longer; empty if none."""
        topics = sorted({where.topic for where in self.lags.partitions if not self.is_read(where.topic)})
        more = f" and {len(topics) - NAMED_MAX} more" if len(topics) > NAMED_MAX else ""
        return (
            f"not counted, because no member reads it any more: {', '.join(topics[:NAMED_MAX])}{more}" if topics else ""
        )
