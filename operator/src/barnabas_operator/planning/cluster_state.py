"""The state of a cluster as its brokers report it: the input of planning."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from barnabas_core.placement import DiskSpace, LogDirLoad
from barnabas_core.topic_partition import TopicPartition


class LogDirContent(NamedTuple):
    """One online log dir: its disk space, and the bytes of each replica that it holds.

    `coming` holds the future replicas, which are copied from another log dir, with the bytes that are copied so far.
    """

    space: DiskSpace
    replicas: Mapping[TopicPartition, int]
    coming: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Disks:
    """The online log dirs of the brokers that answered, by broker and path."""

    log_dirs: Mapping[int, Mapping[str, LogDirContent]]
    replicas: Mapping[int, Mapping[TopicPartition, int]] = field(init=False)
    """The bytes of each replica by broker and partition."""
    sizes: Mapping[TopicPartition, int] = field(init=False)
    """The bytes of the largest replica of each partition."""

    def __post_init__(self) -> None:
        replicas = {
            broker: {which: size for each in contents.values() for which, size in each.replicas.items()}
            for broker, contents in self.log_dirs.items()
        }
        sizes: dict[TopicPartition, int] = {}
        for held in replicas.values():
            for partition, size in held.items():
                sizes[partition] = max(size, sizes.get(partition, 0))
        object.__setattr__(self, "replicas", replicas)
        object.__setattr__(self, "sizes", sizes)

    def loads(self, broker: int) -> list[LogDirLoad]:
        """Return the load of each log dir; a replica that moves between log dirs counts only in its new log dir."""
        contents = self.log_dirs[broker]
        moving = {which for each in contents.values() for which in each.coming}
        loads = []
        for path, each in contents.items():
            sizes = [*(size for which, size in each.replicas.items() if which not in moving)]
            sizes += each.coming.values()
            loads.append(LogDirLoad(path, len(sizes), sizes.count(0), sum(sizes), each.space.usable_bytes))
        return loads

    def to_come_bytes(self, broker: int, partition: TopicPartition) -> int:
        """Return how many bytes the broker's replica of a partition lacks to be as large as the largest replica."""
        held = self.replicas.get(broker, {}).get(partition, 0)
        return max(0, self.sizes.get(partition, 0) - held)

    def room_bytes(self, broker: int) -> int:
        """Return the free bytes of the broker's log dir with the most free bytes, or 0 if the broker did not answer.

        Space that unfinished moves between log dirs will still fill is not counted as free.
        """
        spaces = (each.space for each in self.log_dirs.get(broker, {}).values())
        return max((space.room_bytes - self._coming_bytes(broker, space) for space in spaces), default=0)

    def _coming_bytes(self, broker: int, space: DiskSpace) -> int:
        held = self.replicas.get(broker, {})
        contents = (each for each in self.log_dirs.get(broker, {}).values() if each.space == space)
        return sum(max(0, held.get(which, 0) - done) for each in contents for which, done in each.coming.items())

    @property
    def usual_bytes(self) -> int:
        """The average size of the partitions that are not empty, used as the expected size of an empty partition."""
        filled = [size for size in self.sizes.values() if size]
        return sum(filled) // len(filled) if filled else 1

    def weight(self, partition: TopicPartition) -> int:
        """Return the bytes of a replica, or the expected size if the partition is empty."""
        return self.sizes.get(partition, 0) or self.usual_bytes


ReplicaIds = tuple[int, ...]
"""The broker ids of the replicas of one partition, preferred leader first."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic of the cluster. `overrides` holds only the configs that are set on the topic itself.

    `partitions` holds the current replicas of each partition. During a reassignment the replicas that are being added
    or removed are included, and `moving` holds the target replicas.
    """

    topic_id: str
    partitions: tuple[ReplicaIds, ...]
    overrides: Mapping[str, str]
    moving: Mapping[int, ReplicaIds] = field(default_factory=dict)

    @property
    def targets(self) -> tuple[ReplicaIds, ...]:
        """The replicas of each partition after all reassignments have ended."""
        return tuple(self.moving.get(number, replicas) for number, replicas in enumerate(self.partitions))

    @property
    def replication_factor(self) -> int:
        """Return the topic's number of replicas, taken from partition 0 as it will be after all reassignments."""
        return len(self.targets[0])


@dataclass(frozen=True, slots=True)
class Trouble:
    """A partition whose replicas are not all in sync.

    `offline` is True if the partition has no leader. `lost` describes the lost records if no replica can become leader
    because every replica has lost records. `under_min_isr` is True if the partition has a leader, and fewer in-sync
    replicas than `min.insync.replicas`.
    """

    topic: str
    partition: int
    missing: ReplicaIds
    in_sync: ReplicaIds
    offline: bool
    lost: str | None = None
    under_min_isr: bool = False

    def __str__(self) -> str:
        """Return the partition and its problem as text: no leader, or the brokers that are out of sync."""
        why = "without a leader" if self.offline else f"without broker {', '.join(map(str, self.missing))}"
        return f"{self.topic}-{self.partition} ({why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayLog:
    """A log that a broker keeps but does not serve, because the cluster metadata does not contain its topic.

    `offline` is True if the log dir is offline, so that `size_bytes` is the last known size.
    """

    broker_id: int
    directory: str
    size_bytes: int
    offline: bool = False

    def __str__(self) -> str:
        """Return the broker and the directory of the log as text."""
        return f"broker {self.broker_id} {self.directory}" + (" (the log dir is offline)" if self.offline else "")


class MetadataVersions(NamedTuple):
    """The finalized level of `barnabas.metadata.version`, and the highest level that the responding broker supports."""

    finalized: int
    offered: int


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Live brokers (id to rack), topics by name, and the defaults of the brokers for new topics.

    `troubles` are the partitions that are not fully replicated. `declared` is the declared number of brokers, or 0
    before `with_brokers` sets it. `leaving` are the brokers to be removed. `registered` are all brokers that have ever
    joined, dead brokers included. `awaited` are the brokers that must join or learn their rack before replicas are
    placed. `restarting` are the brokers that restart or have to restart; no rebalance begins before they have
    restarted. `disks` is read only if replicas have to move, and otherwise None. `metadata_versions` is None if the
    brokers do not support `barnabas.metadata.version`.
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
        """Return the state with all brokers whose id is `count` or higher marked as leaving, dead brokers included."""
        holders = (broker for topic in self.topics.values() for row in topic.partitions for broker in row)
        known = (*self.racks, *self.registered, *holders)
        return replace(self, declared=count, leaving=frozenset(broker for broker in known if broker >= count))

    def with_overrides(self, overrides: Mapping[str, Mapping[str, str]]) -> Self:
        """Return the state with the configs in `overrides`, by topic name; other topics keep their configs."""
        changed = {name: replace(self.topics[name], overrides=found) for name, found in overrides.items()}
        return replace(self, topics={**self.topics, **changed})

    def awaiting(self, count: int, informed: Mapping[int, str | None]) -> Self:
        """Return a copy of the state in which `awaited` holds the brokers that must still join or learn their rack.

        `informed` holds the rack of each broker's pod, or None if the broker may have any rack. A live broker is
        awaited until its rack is the rack in `informed`. As long as the cluster has no topics, brokers with ids below
        `count` that have never joined are also awaited, so that the first topics are spread over all brokers.
        """
        behind = (broker for broker, rack in self.racks.items() if informed.get(broker, "") not in (None, rack))
        new = frozenset[int]() if self.topics else frozenset(range(count)) - self.registered
        return replace(self, awaited=new.union(behind))

    @property
    def complete(self) -> Self:
        """A copy of the state that counts dead brokers and the brokers in `awaited` as live brokers."""
        away = self.registered | self.awaited
        return replace(self, racks={**dict.fromkeys(away), **self.racks})

    @property
    def is_moving(self) -> bool:
        """True if any topic has a reassignment in progress."""
        return any(topic.moving for topic in self.topics.values())

    @property
    def homes(self) -> Mapping[int, str | None]:
        """The live brokers that may get replicas, with their racks."""
        return {broker: rack for broker, rack in self.racks.items() if broker not in self.leaving}

    @property
    def knows_disks(self) -> bool:
        """True if all brokers that may get replicas have reported their free space."""
        return self.disks is not None and self.homes.keys() <= self.disks.log_dirs.keys()
