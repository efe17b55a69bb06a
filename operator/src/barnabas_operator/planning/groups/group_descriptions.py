"""The consumer groups, and the logs that they read, as the brokers describe them."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition

DEAD: Final = "Dead"
"""The state that Kafka reports for a group that does not exist."""
WITHOUT_MEMBERS: Final = frozenset({DEAD, "Empty"})
NO_LEADER_EPOCH: Final = -1


class Committed(NamedTuple):
    """A committed offset.

    `offset` is the offset of the next record that the group reads; `metadata` is the text that the client committed
    with it.
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class Member(NamedTuple):
    """A consumer of the group: its client id and its host."""

    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host}"


class GroupDescription(NamedTuple):
    """A group as its coordinator describes it. If `problem` is set, the coordinator has not answered."""

    state: str = DEAD
    members: tuple[Member, ...] = ()
    committed: Mapping[TopicPartition, Committed] = {}
    problem: str = ""

    @property
    def is_there(self) -> bool:
        """True if the group has members or committed offsets."""
        return self.state != DEAD or bool(self.committed)

    @property
    def is_active(self) -> bool:
        """True if the group has members or consumers that are joining, so that only members may commit offsets."""
        return bool(self.members) or self.state not in WITHOUT_MEMBERS


class LogEnds(NamedTuple):
    """The two ends of a log: `start` is its first offset, `end` the offset of the next record to be written."""

    start: int
    end: int


class GroupDescriptions(NamedTuple):
    """The descriptions of groups and of the partitions that they read.

    `groups` holds the groups by id. `partitions` holds the number of partitions of each existing topic. `logs` holds
    the log ends of each partition whose leader has answered.
    """

    groups: Mapping[str, GroupDescription]
    partitions: Mapping[str, int] = {}
    logs: Mapping[TopicPartition, LogEnds] = {}
