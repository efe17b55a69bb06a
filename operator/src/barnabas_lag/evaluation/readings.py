"""The brokers, partitions and groups that one round reads from a cluster."""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition

NO_LEADER: Final = -1
WITHOUT_MEMBERS: Final = frozenset({"Empty", "Dead"})


class PartitionReading(NamedTuple):
    """A partition; `oldest` and `end` are offsets, None if no leader reported them.

    `topic_id` is None in old clusters.
    """

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    oldest: int | None = None
    end: int | None = None
    topic_id: UUID | None = None
    stable: int | None = None
    """The last stable offset, at which consumers with `read_committed` stop."""

    @property
    def held_back(self) -> int | None:
        """The number of offsets that open transactions withhold from consumers with `read_committed`."""
        return None if self.stable is None or self.end is None else max(0, self.end - self.stable)


class GroupReading(NamedTuple):
    """A group; `members` is None if the cluster does not report their number."""

    state: str
    members: int | None
    committed: Mapping[TopicPartition, int]
    resets: Mapping[TopicPartition, str] = {}
    """The ids of a ConsumerGroup's latest resets by partition, read from the metadata of the committed offsets."""
    topics: frozenset[str] | None = None
    """The topics with partitions assigned to members; None if unknown, as during a rebalance."""
    group_type: str = "classic"
    """The protocol of the group: classic, consumer (KIP-848), share (KIP-932) or another one, as it is listed."""
    lags: Mapping[TopicPartition, int] | None = None
    """The lags that the coordinator reports (KIP-1226), for a share group; partitions with an unknown lag are left out.

    `committed` then has the start offsets, before which all records are acknowledged. None for any other group, whose
    lag follows from its committed offsets.
    """

    @property
    def has_members(self) -> bool:
        """True unless the state of the group says that it has no members."""
        return self.state not in WITHOUT_MEMBERS

    def reads(self, topic: str) -> bool:
        """True if a member of the group reads the topic, or if the group has members with unknown assignments."""
        return self.has_members and (self.topics is None or topic in self.topics)


class Consumer(NamedTuple):
    """A member of a group, and its assigned partitions."""

    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class Readings(NamedTuple):
    """The brokers, partitions and groups that one round has read from a cluster.

    `silent` has the groups that exist, but whose committed offsets could not be read.
    """

    brokers: int
    partitions: Mapping[TopicPartition, PartitionReading]
    groups: Mapping[str, GroupReading]
    silent: frozenset[str] = frozenset()
    is_complete: bool = True
    """True if every broker listed its groups; otherwise a group that is not listed may still exist."""
    offsets_retention_s: float | None = None
    """The seconds for which brokers keep the offsets of a group without members; None if no broker reports the time."""
