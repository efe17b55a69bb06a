"""The state of a cluster as it was found: the input of planning."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from barnabas_operator.planning.disk_space import Disks

ReplicaIds = tuple[int, ...]
"""The broker ids of one partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic as the cluster has it. `overrides` holds only the configs that are set on the topic itself.

    `moving` has those partitions whose replicas are being moved, and what they will be; until then `partitions` has
    the ones that come and those that go.
    """

    topic_id: str
    partitions: tuple[ReplicaIds, ...]
    overrides: Mapping[str, str]
    moving: Mapping[int, ReplicaIds] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[ReplicaIds, ...]:
        """The replicas of each partition when nothing moves any more."""
        return tuple(self.moving.get(number, replicas) for number, replicas in enumerate(self.partitions))

    @property
    def replication_factor(self) -> int:
        """Return the number of replicas of partition 0."""
        return len(self.targets[0])


@dataclass(frozen=True, slots=True)
class Trouble:
    """A partition whose replicas are not all in sync; nobody leads where it is `offline`.

    `lost` says what is known of it where nobody leads because every replica lacks records. One that is `under_min_isr`
    has a leader, and fewer replicas in sync than its topic's `min.insync.replicas`.
    """

    topic: str
    partition: int
    missing: ReplicaIds
    in_sync: ReplicaIds
    offline: bool
    lost: str | None = None
    under_min_isr: bool = False

    def __str__(self) -> str:
        """Return the trouble as messages name it."""
        why = "without a leader" if self.offline else f"without broker {', '.join(map(str, self.missing))}"
        return f"{self.topic}-{self.partition} ({why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayLog:
    """A log that a broker keeps and does not serve, for the metadata knows nothing of its topic.

    `offline` is its log dir: then it is known only as it was seen last.
    """

    broker_id: int
    directory: str
    size_bytes: int
    offline: bool = False

    def __str__(self) -> str:
        """Return the log as messages name it."""
        return f"broker {self.broker_id} {self.directory}" + (" (its log dir is offline)" if self.offline else "")


class MetadataVersions(NamedTuple):
    """The levels of `barnabas.metadata.version`: the finalized one, and the highest of the broker that was asked."""

    finalized: int
    offered: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Live brokers (id to rack), topics by name, and what the brokers give a topic that says no number.

    `troubles` are the partitions that are not fully replicated now. `declared` is the number of brokers in the Cluster;
    0 where it says none. `leaving` are the brokers to be removed. `registered` are all that have ever joined, the dead
    ones too. While brokers are `awaited`, no replicas are placed. While some are `restarting`, or have to restart,
    nothing is rebalanced. `disks` are known only where something is to move. `metadata_versions` is None where brokers
    know no such level.
    """

    racks: Mapping[int, str | None]
    topics: Mapping[str, TopicState]
    num_partitions: int = 1
    default_replication_factor: int = 1
    default_min_insync_replicas: int = 1
    controller_id: int | None = None
    troubles: tuple[Trouble, ...] = ()
    declared: int = 0
    leaving: frozenset[int] = frozenset()
    registered: frozenset[int] = frozenset()
    awaited: frozenset[int] = frozenset()
    restarting: frozenset[int] = frozenset()
    cluster_id: str | None = None
    disks: Disks | None = None
    metadata_versions: MetadataVersions | None = None

    def with_brokers(self, count: int) -> Self:
        """Return the state when only the brokers below `count` are wanted; dead ones leave, too."""
        holders = (broker for topic in self.topics.values() for row in topic.partitions for broker in row)
        known = (*self.racks, *self.registered, *holders)
        return replace(self, declared=count, leaving=frozenset(broker for broker in known if broker >= count))

    def with_overrides(self, overrides: Mapping[str, Mapping[str, str]]) -> Self:
        """Return the state with the configs that are set on topics, by their names."""
        changed = {name: replace(self.topics[name], overrides=found) for name, found in overrides.items()}
        return replace(self, topics={**self.topics, **changed})

    def awaiting(self, count: int, informed: Mapping[int, str | None]) -> Self:
        """The same when the brokers below `count` have to join; `informed` know their settings, with their racks.

        A cluster without topics is new: its first topics are spread over all brokers, not over those that came first.
        """
        behind = (broker for broker, rack in self.racks.items() if informed.get(broker, "") not in (None, rack))
        new = frozenset[int]() if self.topics else frozenset(range(count)) - self.registered
        return replace(self, awaited=new.union(behind))

    @property
    def complete(self) -> Self:
        """The same when brokers that are dead, or have not joined yet, are alive."""
        away = self.registered | self.awaited
        return replace(self, racks={**dict.fromkeys(away), **self.racks})

    @property
    def is_moving(self) -> bool:
        """True if replicas of any topic are moving to other brokers."""
        return any(topic.moving for topic in self.topics.values())

    @property
    def homes(self) -> Mapping[int, str | None]:
        """The brokers that may get replicas, and their racks."""
        return {broker: rack for broker, rack in self.racks.items() if broker not in self.leaving}

    @property
    def knows_disks(self) -> bool:
        """True if all brokers that may get replicas have reported their free space."""
        return self.disks is not None and self.homes.keys() <= self.disks.spaces.keys()
