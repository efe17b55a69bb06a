"""Which replicas go where when a topic gets another number of them, or a broker has to be emptied. Pure.

As little moves as can: replicas that may stay do, in their order, so that the preferred leaders stay spread.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds
from barnabas_operator.planning.steps import MoveReplicas


class ReplicaMoves:
    """Plans one topic after the other, and counts what each broker has by then."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster
        self._out_of_sync = {(each.topic, each.partition): each.missing for each in cluster.troubles}
        self._replicas = Counter(broker for topic in cluster.topics.values() for row in topic.targets for broker in row)

    def of_topic(self, name: str, factor: int | None = None, added: Sequence[ReplicaIds] = ()) -> MoveReplicas | None:
        """So that each partition has `factor` replicas (or as many as now), none of them on a broker that is to go.

        `added` are partitions that are made before. The caller has checked that there are enough brokers. None where
        all is so.
        """
        found = (*self._cluster.topics[name].targets, *added)
        wanted = [self._row(row, factor or len(row), (name, number)) for number, row in enumerate(found)]
        changed = {number: row for number, row in enumerate(wanted) if row != found[number]}
        return MoveReplicas(name, changed) if changed else None

    def _row(self, now: ReplicaIds, factor: int, partition: tuple[str, int]) -> ReplicaIds:
        """First the row is cut; then those that cannot stay are replaced where they stand, others put at its end."""
        row = list(now)
        behind = {*self._cluster.leaving, *self._out_of_sync.get(partition, ())}
        while len(row) > factor:
            row.remove(([broker for broker in row if broker in behind] or row)[-1])
        for index, broker in enumerate(row):
            if broker in self._cluster.leaving:
                row[index] = self._pick(row)
        while len(row) < factor:
            row.append(self._pick(row))
        self._replicas.subtract(now)
        self._replicas.update(row)
        return tuple(row)

    def _pick(self, row: Collection[int]) -> int:
        """Another broker: in a rack that has the fewest replicas of the row, with the fewest replicas itself."""
        homes = self._cluster.homes
        racks = Counter(homes[broker] for broker in row if broker in homes)
        return min(homes.keys() - set(row), key=lambda broker: (racks[homes[broker]], self._replicas[broker], broker))
