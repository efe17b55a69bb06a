"""The state of a consumer group at one observation of the brokers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags, PartitionLag
from barnabas_lag.evaluation.readings import WITHOUT_MEMBERS, Consumer
from barnabas_operator.planning.refusal import listed

NOT_FOUND: Final = "NotFound"
"""The reported state of a group that does not exist in Kafka, because no consumer has joined or committed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """An observed group. If the coordinator does not report members, `members` is None and `consumers` is empty."""

    state: str
    members: int | None = None
    consumers: tuple[Consumer, ...] = ()
    lags: GroupLags
    """The lag of the group in the topics with committed offsets, without partitions whose leader does not answer."""
    silent: tuple[TopicPartition, ...] = ()
    """The partitions whose lag is unknown, because no leader answers, in the topics with committed offsets."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions by topic, for topics in which the group has committed offsets or assigned partitions."""
    held_back: int = 0
    """The number of lagging records that read_committed consumers cannot read yet, because a transaction is open."""
    topics_read: frozenset[str] | None = None
    """The topics that the members read, or None if the group has no members or the members report no topics."""

    @property
    def is_there(self) -> bool:
        """True if the group has members or committed offsets."""
        return self.state != NOT_FOUND

    @property
    def has_members(self) -> bool:
        """True if the group has members, so that only members may commit offsets."""
        return self.state not in WITHOUT_MEMBERS and self.is_there

    def is_read(self, topic: str) -> bool:
        """True if the topic counts for the lag objective and for scaling; all topics count if `topics_read` is None."""
        return self.topics_read is None or topic in self.topics_read

    @property
    def counted(self) -> Mapping[TopicPartition, PartitionLag]:
        """Return the lag of each partition whose topic counts for the lag objective and for scaling."""
        return {where: each for where, each in self.lags.partitions.items() if self.is_read(where.topic)}

    @property
    def not_read(self) -> str:
        """Return the message about topics with committed offsets that no member reads any more, or an empty text."""
        topics = sorted({where.topic for where in self.lags.partitions if not self.is_read(where.topic)})
        return f"topics whose lag is ignored, because no member reads them: {listed(topics)}" if topics else ""
