"""The moves of replicas that change a replication factor or empty a broker.

As few replicas as possible move, and the others keep their order, so that the preferred leaders stay spread.

The moves of replicas between log dirs of one broker that a rebalance plan asks for. Brokers copy such replicas
themselves, and continue after a restart. So the operator keeps no state of its own.

The choice of the replica moves that begin now: a few partitions at a time, the most urgent first. All other moves
are planned again in the next reconciliation.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import Value, parse_value
from barnabas_core.placement import LogDirLoad, choose_log_dir
from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import (
    ClusterState,
    Disks,
    LogDirContent,
    PlannedPartition,
    ReplicaIds,
    TopicState,
    declared_texts,
)
from barnabas_operator.resources.cluster import Cluster

ROWS_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """The step that creates a topic; `assignments` holds the replicas of each partition."""

    topic: str
    assignments: tuple[ReplicaIds, ...]
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class IncreasePartitions:
    """The step that adds partitions; `count` is the new total, `assignments` the replicas of the added partitions."""

    topic: str
    count: int
    assignments: tuple[ReplicaIds, ...]


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """The step that changes configs of a topic; None resets a config to its default."""

    topic: str
    changes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class MoveReplicas:
    """The step that starts a reassignment; `assignments` holds the new replicas by partition."""

    topic: str
    assignments: Mapping[int, ReplicaIds]


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """The step that deletes a topic by its id, so that a new topic of the same name is kept."""

    topic: str
    topic_id: str


TopicStep = CreateTopic | IncreasePartitions | AlterConfigs | MoveReplicas | DeleteTopic


def describe(step: TopicStep) -> str:
    """Return the step in words, for the log."""
    match step:
        case CreateTopic(topic, assignments, _):
            return f"create {topic} with {len(assignments)} partitions and {len(assignments[0])} replicas of each"
        case IncreasePartitions(topic, count, assignments):
            return f"raise {topic} from {count - len(assignments)} to {count} partitions"
        case AlterConfigs(topic, changes):
            pairs = (
                f"{key}={value}" if value is not None else f"{key} to its default" for key, value in changes.items()
            )
            return f"set configs of {topic}: {', '.join(pairs)}"
        case MoveReplicas(topic, moved):
            rows = (f"{number} to {','.join(map(str, row))}" for number, row in islice(moved.items(), ROWS_SHOWN))
            more = f" and {len(moved) - ROWS_SHOWN} more" if len(moved) > ROWS_SHOWN else ""
            return f"move replicas of {topic}: {'; '.join(rows)}{more}"
        case DeleteTopic(topic, _):
            return f"delete {topic}"


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


ANY: Final = "any"
"""The word that a plan has in place of a log dir's path if the broker may choose the log dir."""


class LogDirMove(NamedTuple):
    """A move of a replica to another log dir of its broker."""

    partition: TopicPartition
    broker_id: int
    path: str

    def __str__(self) -> str:
        topic, number = self.partition
        return f"move {topic}-{number} on broker {self.broker_id} to {self.path}"


def log_dir_moves(planned: PlannedPartition, disks: Disks) -> list[LogDirMove]:
    """Return the moves of replicas that stay on their broker but are not in the planned log dir yet."""
    partition = TopicPartition(planned.topic, planned.partition)
    named = zip(planned.replicas, planned.log_dirs or (), strict=False)
    wanted = [LogDirMove(partition, *each) for each in named if each[0] in planned.before and each[1] != ANY]
    return [each for each in wanted if partition not in _replicas(each, disks)]


def is_under_way(move: LogDirMove, disks: Disks) -> bool:
    """True if the broker is copying the replica to the planned log dir."""
    content = _content(move, disks)
    return content is not None and move.partition in content.coming


class LogDirRoom:
    """The free space of log dirs.

    Log dirs of one broker that report the same free and total space are taken to be on one disk.
    """

    def __init__(self, disks: Disks) -> None:
        self._disks = disks
        self._room = {
            (broker, path): content.space.room_bytes
            for broker, contents in disks.log_dirs.items()
            for path, content in contents.items()
        }
        for move in _coming(disks):
            self._take(move)

    def why_not(self, moves: Iterable[LogDirMove]) -> str | None:
        """Return why the moves cannot begin; if they can begin, reserve their disk space and return None."""
        moves = tuple(moves)
        for move in moves:
            if move.broker_id not in self._disks.log_dirs:
                return f"broker {move.broker_id} does not report its free space"
            if _content(move, self._disks) is None:
                return f"broker {move.broker_id} has no online log dir {move.path}"
            if self._room[move.broker_id, move.path] < _left_bytes(move, self._disks):
                return f"broker {move.broker_id} has too little free space in {move.path}"
        for move in moves:
            self._take(move)
        return None

    def _take(self, move: LogDirMove) -> None:
        contents = self._disks.log_dirs[move.broker_id]
        for path, content in contents.items():
            if content.space == contents[move.path].space:
                self._room[move.broker_id, path] -= _left_bytes(move, self._disks)


def begin_log_dir_moves(wanted: Iterable[LogDirMove], disks: Disks) -> tuple[LogDirMove, ...]:
    """Return the moves that may begin now without exceeding a broker's limits on copies and bytes in progress."""
    copies, under_way = Counter[int](), Counter[int]()
    for move in _coming(disks):
        copies[move.broker_id] += 1
        under_way[move.broker_id] += _left_bytes(move, disks)
    begin = []
    for move in wanted:
        size, broker = _left_bytes(move, disks), move.broker_id
        if not is_full(copies[broker], under_way[broker] + size):
            begin.append(move)
            copies[broker] += 1
            under_way[broker] += size
    return tuple(begin)


def _coming(disks: Disks) -> Iterator[LogDirMove]:
    """Yield all moves in progress between log dirs, including moves that other clients have requested."""
    for broker, contents in disks.log_dirs.items():
        for path, content in contents.items():
            for partition in content.coming:
                yield LogDirMove(partition, broker, path)


def _left_bytes(move: LogDirMove, disks: Disks) -> int:
    content = _content(move, disks)
    done = content.coming.get(move.partition, 0) if content is not None else 0
    return max(0, disks.replicas.get(move.broker_id, {}).get(move.partition, 0) - done)


def _content(move: LogDirMove, disks: Disks) -> LogDirContent | None:
    return disks.log_dirs.get(move.broker_id, {}).get(move.path)


def _replicas(move: LogDirMove, disks: Disks) -> Iterable[TopicPartition]:
    content = _content(move, disks)
    return content.replicas if content is not None else ()


RULE: Final = "log.dirs.placement"
HEADROOM: Final = "log.dirs.headroom.bytes"


class NewReplica(NamedTuple):
    """A replica that a broker will get."""

    topic: str
    partition: int
    broker_id: int


def new_replicas(steps: Iterable[TopicStep], topics: Mapping[str, TopicState]) -> dict[int, list[NewReplica]]:
    """Return, by broker, the replicas that the planned steps add to the broker."""
    found: dict[int, list[NewReplica]] = {}
    for step in steps:
        had = topics[step.topic].partitions if step.topic in topics else ()
        for number, row in _rows(step):
            there = had[number] if number < len(had) else ()
            for broker_id in row:
                if broker_id not in there:
                    found.setdefault(broker_id, []).append(NewReplica(step.topic, number, broker_id))
    return found


def _rows(step: TopicStep) -> Iterable[tuple[int, Sequence[int]]]:
    match step:
        case CreateTopic(_, assignments, _):
            return enumerate(assignments)
        case IncreasePartitions(_, count, assignments):
            return enumerate(assignments, count - len(assignments))
        case MoveReplicas(_, moved):
            return moved.items()
        case _:
            return ()


def place_in_log_dirs(
    replicas: Iterable[NewReplica], log_dirs: Sequence[LogDirLoad], cluster: Cluster
) -> dict[NewReplica, str]:
    """Return the log dir for each new replica of one broker, or nothing if the broker has only one log dir."""
    if len(log_dirs) < 2:
        return {}
    rule, headroom_bytes = str(_setting(cluster, RULE)), int(str(_setting(cluster, HEADROOM)))
    loads = {load.path: load for load in log_dirs}
    placed = {}
    for replica in replicas:
        path = placed[replica] = choose_log_dir(rule, list(loads.values()), headroom_bytes)
        load = loads[path]
        loads[path] = load._replace(partitions=load.partitions + 1, empty_partitions=load.empty_partitions + 1)
    return placed


def _setting(cluster: Cluster, name: str) -> Value:
    definition, text = BROKER_CONFIGS[name], declared_texts(cluster.spec.config).get(name)
    return definition.default if text is None else parse_value(definition, text)
