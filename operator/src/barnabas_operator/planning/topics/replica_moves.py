"""The moves of replicas that change a replication factor or empty a broker.

As few replicas as possible move, and the others keep their order, so that the preferred leaders stay spread.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds
from barnabas_operator.planning.disk_space import Disks
from barnabas_operator.planning.topics.topic_steps import MoveReplicas


class ReplicaMoves:
    """The planner of replica moves for one topic after another.

    The planner counts the load of each broker after the moves planned so far: in bytes if the sizes of replicas are
    known, else in replicas. No broker gets more bytes than it has space for.
    """

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._disks = cluster.disks
        self._out_of_sync = {TopicPartition(each.topic, each.partition): each.missing for each in cluster.troubles}
        self._loads = loads(cluster)
        self._room = room(cluster, self._disks) if self._disks is not None else {}
        self.without_room: Final[set[TopicPartition]] = set()
        """The partitions that keep their replicas because no broker has enough space."""

    def of_topic(self, name: str, factor: int | None = None, added: Sequence[ReplicaIds] = ()) -> MoveReplicas | None:
        """Return the move of a topic's replicas, or None if no replica has to move.

        The move gives each partition `factor` replicas, or as many as now if `factor` is None, on brokers that are not
        leaving. `added` holds the replicas of partitions that an earlier step of the plan adds to the topic. The caller
        has checked that there are enough brokers. A partition for which no broker has space keeps its replicas.
        """
        found = (*self._cluster.topics[name].targets, *added)
        wanted = [self._row(row, factor or len(row), TopicPartition(name, number)) for number, row in enumerate(found)]
        changed = {number: row for number, row in enumerate(wanted) if row != found[number]}
        return MoveReplicas(name, changed) if changed else None

    def _row(self, now: ReplicaIds, factor: int, partition: TopicPartition) -> ReplicaIds:
        """Return the new replicas of a partition, or its current replicas `now` if the new ones are not possible.

        The new replicas need brokers with enough space, in as many racks as before. Surplus replicas are removed first,
        replicas on leaving brokers are replaced, and missing replicas are appended.
        """
        row = list(now)
        while len(row) > factor:
            row.remove(self._surplus(row, self._out_of_sync.get(partition, ())))
        places = [index for index, broker in enumerate(row) if broker in self._cluster.leaving]
        for index in (*places, *range(len(row), factor)):
            picked = self._pick(row, partition)
            if picked is None:
                if self._disks is not None:
                    self.without_room.add(partition)
                return now
            row[index : index + 1] = [picked]
        # The new replicas may be in fewer racks than now, because the brokers in a rack lack space, or because a
        # removed replica was the only replica in its rack.
        if not self._keeps_racks(now, row):
            self.without_room.add(partition)
            return now
        self._count(now, row, partition)
        return tuple(row)

    def _surplus(self, row: Sequence[int], out_of_sync: Collection[int]) -> int:
        """Return the replica to remove, preferably one that is out of sync.

        Among the rest, prefer a replica that shares its rack with another replica, then a replica on a leaving broker.
        Among equals, return the last replica.
        """
        racks, leaving = self._cluster.racks, self._cluster.leaving
        in_rack = Counter(racks.get(broker) for broker in row)
        return min(
            reversed(row),
            key=lambda broker: (broker not in out_of_sync, in_rack[racks.get(broker)] == 1, broker not in leaving),
        )

    def _keeps_racks(self, now: Collection[int], row: Collection[int]) -> bool:
        """True if the new replicas are in as many racks as before, or in all racks, or each in a rack of its own."""
        racks, homes = self._cluster.racks, self._cluster.homes
        before = {racks[broker] for broker in now if broker in racks}
        after = {racks[broker] for broker in row if broker in racks}
        return len(after) >= min(len(before), len(set(homes.values())), len(row))

    def _pick(self, row: Collection[int], partition: TopicPartition) -> int | None:
        """Return a broker that is not in `row` for a new replica of the partition, or None if none has enough space.

        A broker in the rack with the fewest replicas in `row` is preferred, then a broker with the least load.
        """
        homes = self._cluster.homes
        racks = Counter(homes[broker] for broker in row if broker in homes)
        size = self._disks.sizes.get(partition, 0) if self._disks is not None else 0
        fit = (broker for broker in homes if broker not in row and self._room.get(broker, size) >= size)
        return min(fit, key=lambda broker: (racks[homes[broker]], self._loads[broker], broker), default=None)

    def _count(self, now: Collection[int], row: Collection[int], partition: TopicPartition) -> None:
        weight = self._disks.weight(partition) if self._disks is not None else 1
        for broker in now:
            self._loads[broker] -= weight
        for broker in row:
            self._loads[broker] += weight
        for broker in set(row).difference(now).intersection(self._room):
            assert self._disks is not None, "the free space is known, so the brokers' disks must be known, too"
            self._room[broker] -= self._disks.sizes.get(partition, 0)


def loads(cluster: ClusterState) -> Counter[int]:
    """Return the load of each broker after all moves in progress.

    The load is in bytes if the sizes of replicas are known, else in replicas.
    """
    counted = Counter[int]()
    for name, topic in cluster.topics.items():
        for number, row in enumerate(topic.targets):
            weight = cluster.disks.weight(TopicPartition(name, number)) if cluster.disks is not None else 1
            for broker in row:
                counted[broker] += weight
    return counted


def room(cluster: ClusterState, disks: Disks) -> dict[int, int]:
    """Return, by broker, the free bytes after all moves in progress."""
    left = {broker: disks.room_bytes(broker) for broker in cluster.homes}
    for name, topic in cluster.topics.items():
        for number, row in topic.moving.items():
            for broker in set(row).intersection(left):
                left[broker] -= disks.to_come_bytes(broker, TopicPartition(name, number))
    return left
