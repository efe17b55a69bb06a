"""The moves of replicas to brokers with less data than the others, such as new brokers.

Each move takes a replica from a broker above the average load, and gives the replica to the broker with the least load
that has enough free space. The number of racks of a partition never decreases.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds
from barnabas_operator.planning.rebalance_request import APPROVAL, APPROVED
from barnabas_operator.planning.topics.replica_moves import loads, room
from barnabas_operator.planning.topics.topic_steps import MoveReplicas
from barnabas_operator.resources.cluster import Cluster

UNEVEN_SHARE: Final = 0.8
"""The operator proposes a rebalance if a broker's load is below this share of the average load."""
EVEN_SHARE: Final = 1.05
"""The multiple of the average load above which a rebalance moves replicas away from a broker."""


class Rebalance(NamedTuple):
    """A rebalance, which is carried out only if `is_approved`: its moves, and the brokers that get replicas."""

    moves: tuple[MoveReplicas, ...]
    partitions: int
    size_bytes: int
    to_brokers: tuple[int, ...]
    is_approved: bool


def is_approved(cluster: Cluster) -> bool:
    """True if the annotation of the Cluster approves a rebalance, or spec.rebalance is Automatic."""
    return cluster.spec.rebalance == "Automatic" or is_asked_for(cluster)


def is_asked_for(cluster: Cluster) -> bool:
    """True if an annotation of the Cluster approves a rebalance.

    The operator removes the annotation after the last move.
    """
    return cluster.metadata.annotations.get(APPROVAL) == APPROVED


def is_uneven(state: ClusterState) -> bool:
    """True if moves may begin (`is_calm`), and a broker's load is below `UNEVEN_SHARE` of the average load."""
    counted = loads(state)
    mean = sum(counted[broker] for broker in state.homes) / max(1, len(state.homes))
    return is_calm(state) and min(counted[broker] for broker in state.homes) < UNEVEN_SHARE * mean


def is_calm(state: ClusterState) -> bool:
    """True if all brokers are up and stay, and all replicas are in sync.

    The result is False if a broker is restarting, will be removed, or is in `awaited`. A partition that is being
    reassigned needs only a leader.
    """
    moving = {(name, number) for name, topic in state.topics.items() for number in topic.moving}
    is_whole = all((each.topic, each.partition) in moving and not each.offline for each in state.troubles)
    is_staying = not (state.leaving or state.awaited or state.restarting)
    return is_whole and is_staying and len(state.homes) >= max(1, state.declared)


def plan_rebalance(state: ClusterState, left_alone: Collection[str] = ()) -> tuple[MoveReplicas, ...]:
    """Return the moves of a rebalance, but none unless all brokers are up and all replicas are in sync (`is_calm`).

    Topics in `left_alone` count towards the load of brokers, but are not moved.
    """
    if not is_calm(state):
        return ()
    plan = _Plan(state, left_alone)
    for broker in sorted(state.homes, key=lambda broker: (-plan.loads[broker], broker)):
        plan.relieve(broker)
    return plan.moves()


class _Plan:
    """The load of each broker and the replicas of each partition after the moves that are planned so far."""

    def __init__(self, state: ClusterState, left_alone: Collection[str]) -> None:
        self._homes, self._disks = state.homes, state.disks
        self.loads: Counter[int] = loads(state)
        self._mean = sum(self.loads[broker] for broker in self._homes) / len(self._homes)
        self._room = room(state, state.disks) if state.disks is not None else None
        moving = {TopicPartition(name, number) for name, topic in state.topics.items() for number in topic.moving}
        self._before = {
            partition: row
            for partition, row in _rows(state)
            if partition not in moving and partition.topic not in left_alone and set(row) <= set(self._homes)
        }
        self._rows = dict(self._before)

    def relieve(self, broker: int) -> None:
        """Move replicas, the largest first, away from a broker until its load is about the average."""
        held = [partition for partition, row in self._rows.items() if broker in row]
        for partition in sorted(held, key=lambda partition: (-self._weight(partition), partition)):
            if self.loads[broker] <= EVEN_SHARE * self._mean:
                return
            self._give(broker, partition)

    def moves(self) -> tuple[MoveReplicas, ...]:
        """Return the planned moves by topic."""
        changed: dict[str, dict[int, ReplicaIds]] = {}
        for partition, row in self._rows.items():
            if row != self._before[partition]:
                changed.setdefault(partition.topic, {})[partition.partition] = row
        return tuple(MoveReplicas(topic, rows) for topic, rows in sorted(changed.items()))

    def _give(self, broker: int, partition: TopicPartition) -> None:
        """Move a replica from `broker` to the least loaded broker that can take it, if this evens out their loads."""
        row, weight = self._rows[partition], self._weight(partition)
        fit = [each for each in self._homes if self._fits(each, broker, partition)]
        taker = min(fit, key=lambda each: (self.loads[each], each), default=None)
        if taker is None or self.loads[taker] + weight >= self.loads[broker]:
            return
        self._rows[partition] = tuple(taker if each == broker else each for each in row)
        self.loads[broker] -= weight
        self.loads[taker] += weight
        if self._room is not None:
            self._room[taker] -= self._size(partition)

    def _fits(self, taker: int, giver: int, partition: TopicPartition) -> bool:
        row = self._rows[partition]
        if (
            taker in row
            or self.loads[taker] >= self._mean
            or (self._room is not None and self._room[taker] < self._size(partition))
        ):
            return False
        others = [each for each in row if each != giver]
        return self._racks([*others, taker]) >= self._racks(row)

    def _racks(self, row: Collection[int]) -> int:
        return len({self._homes[broker] for broker in row})

    def _size(self, partition: TopicPartition) -> int:
        return self._disks.sizes.get(partition, 0) if self._disks is not None else 0

    def _weight(self, partition: TopicPartition) -> int:
        return self._disks.weight(partition) if self._disks is not None else 1


def _rows(state: ClusterState) -> Iterator[tuple[TopicPartition, ReplicaIds]]:
    for name, topic in sorted(state.topics.items()):
        for number, row in enumerate(topic.targets):
            yield TopicPartition(name, number), row


def takers(moves: Sequence[MoveReplicas], state: ClusterState) -> tuple[int, ...]:
    """Return the ids of the brokers that get new replicas."""
    found = {
        broker
        for move in moves
        for number, row in move.assignments.items()
        for broker in set(row).difference(state.topics[move.topic].targets[number])
    }
    return tuple(sorted(found))
