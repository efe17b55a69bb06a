"""The choice of the replica moves that begin now: a few partitions at a time, the most urgent first.

All other moves are planned again in the next reconciliation.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds
from barnabas_operator.planning.topics.topic_steps import MoveReplicas

PARTITIONS_MAX: Final = 20
BYTES_MAX: Final = 1 << 30
"""The limit on the bytes that a broker copies at a time. A single larger partition may exceed it."""


class Turns(NamedTuple):
    """The moves that may begin now, and the number of partitions that must wait until other moves have ended."""

    begin: tuple[MoveReplicas, ...]
    waiting: int


class _Move(NamedTuple):
    partition: TopicPartition
    row: ReplicaIds
    comes_to: frozenset[int]
    size_bytes: int


def take_turns(wanted: Sequence[MoveReplicas], cluster: ClusterState) -> Turns:
    """Return the moves that begin now, and the number of partitions that have to wait.

    Moves that copy no replica are chosen first, then moves of partitions with the fewest in-sync replicas.
    """
    copies, under_way = _under_way(cluster)
    in_sync = {TopicPartition(each.topic, each.partition): len(each.in_sync) for each in cluster.troubles}
    chosen: dict[str, dict[int, ReplicaIds]] = {}
    waiting = 0
    for move in sorted(_moves(wanted, cluster), key=lambda move: _urgency(move, in_sync, cluster)):
        if any(_is_busy(broker, move, copies, under_way) for broker in move.comes_to):
            waiting += 1
            continue
        chosen.setdefault(move.partition.topic, {})[move.partition.partition] = move.row
        copies.update(move.comes_to)
        under_way.update(dict.fromkeys(move.comes_to, move.size_bytes))
    return Turns(tuple(MoveReplicas(topic, dict(sorted(rows.items()))) for topic, rows in chosen.items()), waiting)


def partitions_in_sum(moves: Iterable[MoveReplicas]) -> int:
    """Return the total number of partitions in the moves."""
    return sum(len(move.assignments) for move in moves)


def copies_replicas(moves: Iterable[MoveReplicas], cluster: ClusterState) -> bool:
    """True if a move gives a partition to a broker that has no replica of it yet."""
    return any(move.comes_to for move in _moves(moves, cluster))


def bytes_to_copy(moves: Iterable[MoveReplicas], cluster: ClusterState) -> int:
    """Return the total bytes of all new replicas; unknown sizes count as 0."""
    return sum(move.size_bytes * len(move.comes_to) for move in _moves(moves, cluster))


def _under_way(cluster: ClusterState) -> tuple[Counter[int], Counter[int]]:
    """Return, by broker, the number of partitions that the broker is copying, and the bytes still to copy."""
    missing = {TopicPartition(each.topic, each.partition): each.missing for each in cluster.troubles}
    copies, sizes = Counter[int](), Counter[int]()
    for name, topic in cluster.topics.items():
        for number, row in topic.moving.items():
            partition = TopicPartition(name, number)
            for broker in set(row).intersection(missing.get(partition, ())):
                copies[broker] += 1
                sizes[broker] += cluster.disks.to_come_bytes(broker, partition) if cluster.disks is not None else 0
    return copies, sizes


def _moves(wanted: Iterable[MoveReplicas], cluster: ClusterState) -> Iterator[_Move]:
    for step in wanted:
        there = cluster.topics[step.topic].partitions
        for number, row in step.assignments.items():
            partition = TopicPartition(step.topic, number)
            size = cluster.disks.sizes.get(partition, 0) if cluster.disks is not None else 0
            has = there[number] if number < len(there) else ()
            yield _Move(partition, row, frozenset(row).difference(has), size)


def _urgency(
    move: _Move, in_sync: dict[TopicPartition, int], cluster: ClusterState
) -> tuple[bool, int, int, TopicPartition]:
    there = cluster.topics[move.partition.topic].partitions
    replicas = len(there[move.partition.partition]) if move.partition.partition < len(there) else 0
    return bool(move.comes_to), in_sync.get(move.partition, replicas), move.size_bytes, move.partition


def _is_busy(broker: int, move: _Move, copies: Counter[int], under_way: Counter[int]) -> bool:
    return is_full(copies[broker], under_way[broker] + move.size_bytes)


def is_full(copies: int, size_bytes: int) -> bool:
    """True if a broker may not begin a further copy.

    `copies` is the number of copies in progress on the broker. `size_bytes` is the number of bytes that the broker
    still has to copy, including the further copy.
    """
    return bool(copies) and (copies >= PARTITIONS_MAX or size_bytes > BYTES_MAX)
