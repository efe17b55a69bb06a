"""A consumer group as a look at the brokers found it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import GroupLags
from barnabas_lag.evaluation.readings import WITHOUT_MEMBERS, Consumer

NOT_FOUND: Final = "NotFound"
"""Nobody has joined or committed: Kafka makes a group when somebody does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSeen:
    """`members` and `consumers` are what its coordinator tells; None and nothing where it tells no members."""

    state: str
    members: int | None = None
    consumers: tuple[Consumer, ...] = ()
    lags: GroupLags
    """In all partitions that it has committed to and whose leaders tell their ends."""
    silent: tuple[TopicPartition, ...] = ()
    """The others that it has committed to: how far it is behind there, nobody knows now."""
    partition_counts: Mapping[str, int] = field(default_factory=dict)
    """How many partitions each topic has that it has committed to, or that its members have."""

    @property
    def is_there(self) -> bool:
        """Whether anybody has joined or committed."""
        return self.state != NOT_FOUND

    @property
    def has_members(self) -> bool:
        """Whether somebody reads for it now: then its offsets are its members'."""
        return self.state not in WITHOUT_MEMBERS and self.is_there
