"""What one round reads of a cluster."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition

NO_LEADER: Final = -1
WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


class PartitionReading(NamedTuple):
    """One partition. `oldest` and `end` are offsets, None where no leader told them; old clusters tell no ids."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    oldest: int | None = None
    end: int | None = None
    topic_id: UUID | None = None


class GroupReading(NamedTuple):
    """One group. `members` is None where the cluster does not tell their number."""

    state: str
    members: int | None
    committed: Mapping[TopicPartition, int]

    @property
    def has_members(self) -> bool:
        """Whether somebody reads for it now."""
        return self.state not in WITHOUT_MEMBERS


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
    """Whether every broker told its groups: only then a group that is not here is gone."""
