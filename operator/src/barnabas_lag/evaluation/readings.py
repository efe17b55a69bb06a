"""The readings of a cluster in one round."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition

NO_LEADER: Final = -1
WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


class PartitionReading(NamedTuple):
    """One partition. `oldest` and `end` are offsets, None where no leader reported them; old clusters tell no ids."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    oldest: int | None = None
    end: int | None = None
    topic_id: UUID | None = None
    stable: int | None = None
    """The offset at which consumers of committed records stop."""

    @property
    def held_back(self) -> int | None:
        """The offsets that open transactions keep from them."""
        return None if self.stable is None or self.end is None else max(0, self.end - self.stable)


class GroupReading(NamedTuple):
    """One group. `members` is None where the cluster does not tell their number."""

    state: str
    members: int | None
    committed: Mapping[TopicPartition, int]
    resets: Mapping[TopicPartition, str] = {}
    """The id of the last declared reset, where what is committed tells of one."""
    topics: frozenset[str] | None = None
    """The topics with partitions that its members have; None if they are not known, as in a rebalance."""

    @property
    def has_members(self) -> bool:
        """True if the group has members now."""
        return self.state not in WITHOUT_MEMBERS

    def reads(self, topic: str) -> bool:
        """True if some member reads the topic now, as far as is known."""
        return self.has_members and (self.topics is None or topic in self.topics)


class Consumer(NamedTuple):
    """A member of a group, and the partitions that it has."""

    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class Readings(NamedTuple):
    """All of it. Of `silent` groups is known that they are there, but not what they have committed."""

    brokers: int
    partitions: Mapping[TopicPartition, PartitionReading]
    groups: Mapping[str, GroupReading]
    silent: frozenset[str] = frozenset()
    is_complete: bool = True
    """True if every broker listed its groups: only then a group that is not listed is gone."""
    offsets_retention_s: float | None = None
    """The seconds for which the offsets of a group without members are kept; None if no broker reports it."""
