"""What a cluster was found to have: the input of planning."""

from collections.abc import Mapping
from dataclasses import dataclass

ReplicaIds = tuple[int, ...]
"""Broker ids of one partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic as the cluster has it. `overrides` holds only the configs that are set on the topic itself."""

    topic_id: str
    partitions: tuple[ReplicaIds, ...]
    overrides: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        """Replicas of partition 0; `mixed` tells whether all others have as many."""
        return len(self.partitions[0])

    @property
    def mixed(self) -> bool:
        """Whether the partitions differ in their number of replicas."""
        return len({len(replicas) for replicas in self.partitions}) > 1


@dataclass(frozen=True, slots=True)
class Trouble:
    """A partition whose replicas are not all in sync; nobody leads where it is `offline`."""

    topic: str
    partition: int
    missing: ReplicaIds
    in_sync: ReplicaIds
    offline: bool

    def __str__(self) -> str:
        """For people."""
        why = "without a leader" if self.offline else f"without broker {', '.join(map(str, self.missing))}"
        return f"{self.topic}-{self.partition} ({why})"


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Live brokers (id to rack), topics by name, and what the brokers give a topic that says no number.

    `troubles` are the partitions that are not fully replicated now.
    """

    racks: Mapping[int, str | None]
    topics: Mapping[str, TopicState]
    num_partitions: int = 1
    default_replication_factor: int = 1
    default_min_insync_replicas: int = 1
    controller_id: int | None = None
    troubles: tuple[Trouble, ...] = ()
