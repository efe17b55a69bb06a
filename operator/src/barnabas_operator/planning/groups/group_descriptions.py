"""What brokers say of consumer groups, and of the logs that they read. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition

DEAD: Final = "Dead"
"""Kafka's state of a group that is not there."""
WITHOUT_MEMBERS: Final = frozenset({DEAD, "Empty"})
NO_LEADER_EPOCH: Final = -1


class Committed(NamedTuple):
    """`offset` is that of the next record that the group reads; `metadata` is what the client said with its commit."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""


class Member(NamedTuple):
    """A consumer of the group, and where it comes from."""

    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host}"


class GroupDescription(NamedTuple):
    """One group, as its coordinator says. Where `problem` is there, it did not answer, and nothing else is known."""

    state: str = DEAD
    members: tuple[Member, ...] = ()
    committed: Mapping[TopicPartition, Committed] = {}
    problem: str = ""

    @property
    def is_there(self) -> bool:
        """Whether it has members or has committed offsets."""
        return self.state != DEAD or bool(self.committed)

    @property
    def is_active(self) -> bool:
        """Whether it has members, or some that join: then its offsets are theirs."""
        return bool(self.members) or self.state not in WITHOUT_MEMBERS


class LogEnds(NamedTuple):
    """`start` is the offset of the oldest record that is there, `end` that of the next one to be written."""

    start: int
    end: int


class GroupDescriptions(NamedTuple):
    """The groups by id; the number of partitions of each topic that exists; and the logs of those partitions whose
    leaders reported both ends."""

    groups: Mapping[str, GroupDescription]
    partitions: Mapping[str, int] = {}
    logs: Mapping[TopicPartition, LogEnds] = {}
