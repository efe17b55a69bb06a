"""The plan of moves after which all brokers, and all log dirs of a broker, hold about the same number of bytes.

The sum of the squared bytes of brokers and log dirs says how uneven a cluster is. Each move of the plan is the one that
reduces this sum most. The first moves have the most effect, so the beginning of a plan is a good plan, too.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition


class LogDir(NamedTuple):
    """A log dir of a broker."""

    broker: int
    path: str


class Replica(NamedTuple):
    """A replica: its log dir and its size."""

    log_dir: LogDir
    bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement of replicas in a cluster: live brokers with their racks, online log dirs, and the replicas there.

    `rows` has the replica list of each partition, preferred leader first, and `leaders` the present leaders. Partitions
    in `left_alone` take space but are not moved, because a replica is offline, out of sync or already moving.
    """

    racks: Mapping[int, str | None]
    spaces: Mapping[LogDir, DiskSpace]
    rows: Mapping[TopicPartition, tuple[int, ...]]
    leaders: Mapping[TopicPartition, int]
    replicas: Mapping[TopicPartition, Mapping[int, Replica]]
    """The replicas by partition and broker."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    internal: Collection[str] = frozenset()
    """Kafka's internal topics."""
    left_alone: Collection[TopicPartition] = frozenset()


class BrokerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a broker now and after a rebalance; `records_per_s` is the rate of the partitions that it leads."""

    broker: int
    rack: str | None
    replicas: int
    leaders: int
    bytes: int
    bytes_after: int
    records_per_s: float


class LogDirLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a log dir now and after a rebalance.

    `usable_bytes` and `total_bytes` of the disk are -1 if the broker does not report them.
    """

    broker: int
    log_dir: str
    replicas: int
    bytes: int
    bytes_after: int
    usable_bytes: int
    total_bytes: int


def dir_bytes(placement: Placement) -> dict[LogDir, int]:
    """Return the bytes of the replicas in each log dir."""
    found = dict.fromkeys(placement.spaces, 0)
    for replica in _replicas(placement):
        found[replica.log_dir] += replica.bytes
    return found


def by_broker(dirs: Mapping[LogDir, int], brokers: Iterable[int]) -> dict[int, int]:
    """Return for each broker the sum of the bytes of its log dirs."""
    found = dict.fromkeys(brokers, 0)
    for log_dir, size in dirs.items():
        found[log_dir.broker] += size
    return found


def broker_loads(
    placement: Placement, after: Mapping[LogDir, int], rates: Mapping[TopicPartition, float]
) -> list[BrokerLoad]:
    """Return the loads of all live brokers.

    `after` has the bytes of log dirs after the rebalance, and `rates` the records per second of each partition.
    """
    now, then = (by_broker(dirs, placement.racks) for dirs in (dir_bytes(placement), after))
    held = Counter(replica.log_dir.broker for replica in _replicas(placement))
    led: dict[int, list[TopicPartition]] = {broker: [] for broker in placement.racks}
    for partition, leader in placement.leaders.items():
        led.get(leader, []).append(partition)
    return [
        BrokerLoad(
            broker=broker,
            rack=rack,
            replicas=held[broker],
            leaders=len(led[broker]),
            bytes=now[broker],
            bytes_after=then[broker],
            records_per_s=sum((rates.get(partition, 0.0) for partition in led[broker]), 0.0),
        )
        for broker, rack in sorted(placement.racks.items())
    ]


def log_dir_loads(placement: Placement, after: Mapping[LogDir, int]) -> list[LogDirLoad]:
    """Return the loads of all online log dirs; `after` has their bytes after the rebalance."""
    now, held = dir_bytes(placement), Counter(replica.log_dir for replica in _replicas(placement))
    return [
        LogDirLoad(
            broker=each.broker,
            log_dir=each.path,
            replicas=held[each],
            bytes=now[each],
            bytes_after=after[each],
            usable_bytes=space.usable_bytes,
            total_bytes=space.total_bytes,
        )
        for each, space in sorted(placement.spaces.items())
    ]


def _replicas(placement: Placement) -> list[Replica]:
    return [replica for held in placement.replicas.values() for replica in held.values()]


ANY: Final = "any"
UNEVEN_SHARE: Final = 0.05
"""The largest deviation from the mean, as a share of the mean, at which brokers or log dirs count as balanced."""


class Reassigned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partition in the form of kafka-reassign-partitions.

    `log_dirs` has one log dir for each replica, or is None if every replica may be in any log dir. `before` has the
    replicas at the time of the plan; Kafka's tool ignores `before`.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    before: tuple[int, ...]
    log_dirs: tuple[str, ...] | None = None


class Reassignment(msgspec.Struct, frozen=True, kw_only=True):
    """The reassignment file for the tool kafka-reassign-partitions. The tool ignores the field `topic_ids`."""

    version: int
    partitions: list[Reassigned]
    topic_ids: dict[str, str]


class Plan(NamedTuple):
    """The partitions to move, the size of the replicas to move, and the bytes in each log dir after all moves."""

    partitions: list[Reassigned]
    moved_bytes: int
    dirs: dict[LogDir, int]


class _Move(NamedTuple):
    """A move of a replica to another log dir, of the same broker or another."""

    gain: float
    partition: TopicPartition
    giver: LogDir
    taker: LogDir


class _Pair(NamedTuple):
    """Two log dirs: a replica may move from `giver` to `taker`.

    The unevenness of the cluster is the sum of weight * bytes squared over all log dirs and brokers; `_pairs` describes
    the weights. A move of s bytes reduces the unevenness by s * (2 * pull - s * brake). The reduction is at most
    `bound`, whatever s is.

    `pull` is the weighted bytes of `giver` and its broker minus those of `taker` and its broker. `brake` is the sum of
    the weights of these log dirs and brokers. If both log dirs are on one broker, `pull` and `brake` leave the broker
    out.
    """

    bound: float
    pull: float
    brake: float
    giver: LogDir
    taker: LogDir

    def gain(self, size: int) -> float:
        return size * (2 * self.pull - size * self.brake)


def plan_rebalance(placement: Placement, moves_max: int) -> Plan:
    """Return a plan of at most `moves_max` moves, at most one for each replica."""
    plan = _Planning(placement)
    for _ in range(moves_max):
        move = plan.best()
        if move is None:
            break
        plan.do(move)
    return plan.plan()


def reassignment_json(placement: Placement, partitions: Sequence[Reassigned]) -> bytes:
    """Return the moves as a file for kafka-reassign-partitions."""
    ids = {each.topic: placement.topic_ids[each.topic] for each in partitions if each.topic in placement.topic_ids}
    return msgspec.json.encode(Reassignment(version=1, partitions=list(partitions), topic_ids=ids))


def bounded_json(placement: Placement, partitions: Sequence[Reassigned], bytes_max: int) -> tuple[str, int]:
    """Return the reassignment file with as many partitions of the plan as fit, and the number of these partitions.

    The file takes the first partitions of the plan. Quoted as a JSON string, the file has at most `bytes_max` bytes,
    unless not even one partition fits.
    """
    count = len(partitions)
    while True:
        text = reassignment_json(placement, partitions[:count]).decode()
        if count == 0 or len(msgspec.json.encode(text)) <= bytes_max:
            return text, count
        count -= 1


class _Planning:
    """The bytes of each broker and log dir, which each planned move updates.

    The space of a moved replica is not counted as free, because a broker deletes the replica only after it was copied.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._dirs = dir_bytes(placement)
        self._brokers = by_broker(self._dirs, placement.racks)
        self._dirs_of = {broker: [each for each in self._dirs if each.broker == broker] for broker in self._brokers}
        self._room = {log_dir: space.room_bytes for log_dir, space in placement.spaces.items()}
        self._rows = dict(placement.rows)
        self._held: dict[LogDir, dict[TopicPartition, int]] = {log_dir: {} for log_dir in self._dirs}
        for partition, replica in _movable(placement):
            self._held[replica.log_dir][partition] = replica.bytes
        self._moves: list[_Move] = []

    def best(self) -> _Move | None:
        """Return the move that most reduces the unevenness of the cluster, or None if no move reduces it.

        The method `_pairs` describes the unevenness.
        """
        found: _Move | None = None
        for pair in sorted(self._pairs(), key=lambda pair: -pair.bound):
            if found is not None and pair.bound <= found.gain:
                break
            for partition, size in self._held[pair.giver].items():
                gain = pair.gain(size)
                if gain > (found.gain if found is not None else 0) and self._fits(pair, partition, size):
                    found = _Move(gain, partition, pair.giver, pair.taker)
        return found

    def do(self, move: _Move) -> None:
        """Add the move to the plan; the plan does not move this replica again."""
        size = self._held[move.giver].pop(move.partition)
        self._dirs[move.giver] -= size
        self._dirs[move.taker] += size
        self._brokers[move.giver.broker] -= size
        self._brokers[move.taker.broker] += size
        self._fill(move.taker, self._size(move.partition))
        self._rows[move.partition] = self._row(move.partition, move.giver.broker, move.taker.broker)
        self._moves.append(move)

    def plan(self) -> Plan:
        """Return the plan, with partitions in the order of their first move."""
        takers: dict[TopicPartition, dict[int, LogDir]] = {}
        for move in self._moves:
            takers.setdefault(move.partition, {})[move.taker.broker] = move.taker
        moved = sum(self._placement.replicas[each.partition][each.giver.broker].bytes for each in self._moves)
        return Plan([self._reassigned(*each) for each in takers.items()], moved, self._dirs)

    def _reassigned(self, partition: TopicPartition, takers: dict[int, LogDir]) -> Reassigned:
        row, before = self._rows[partition], self._placement.rows[partition]
        chosen = {broker for broker in takers if len(self._dirs_of[broker]) > 1}
        dirs = tuple(takers[broker].path if broker in chosen else ANY for broker in row)
        return Reassigned(
            topic=partition.topic,
            partition=partition.partition,
            replicas=row,
            before=before,
            log_dirs=dirs if chosen else None,
        )

    def _pairs(self) -> Iterator[_Pair]:
        """Yield the pairs of log dirs between which a move can reduce the unevenness of the cluster.

        The unevenness is the sum of the squared bytes of each log dir and the weighted squared bytes of each broker.
        The weight of a broker with n log dirs is 1 - 1/n. With this weight, a broker with evenly filled log dirs adds
        exactly the square of its bytes, whatever n is.
        """
        share = {broker: 1 - 1 / len(dirs) for broker, dirs in self._dirs_of.items() if dirs}
        for giver, more in self._dirs.items():
            for taker, less in self._dirs.items():
                pull, brake = float(more - less), 2.0
                if giver.broker != taker.broker:
                    here, there = share[giver.broker], share[taker.broker]
                    pull += here * self._brokers[giver.broker] - there * self._brokers[taker.broker]
                    brake += here + there
                if pull > 0 and self._is_uneven(giver, taker):
                    yield _Pair(pull * pull / brake, pull, brake, giver, taker)

    def _is_uneven(self, giver: LogDir, taker: LogDir) -> bool:
        if giver.broker == taker.broker:
            more, less = self._dirs[giver], self._dirs[taker]
            mean = self._brokers[giver.broker] / len(self._dirs_of[giver.broker])
        else:
            more, less = self._brokers[giver.broker], self._brokers[taker.broker]
            mean = sum(self._brokers.values()) / len(self._brokers)
        return more > less and max(more - mean, mean - less) > UNEVEN_SHARE * mean

    def _fits(self, pair: _Pair, partition: TopicPartition, size: int) -> bool:
        giver, taker = pair.giver.broker, pair.taker.broker
        if self._room[pair.taker] < self._size(partition):
            return False
        if giver == taker:
            return True
        row = self._rows[partition]
        if taker in row or self._brokers[taker] + size >= self._brokers[giver]:
            return False
        return self._racks(self._row(partition, giver, taker)) >= self._racks(row)

    def _fill(self, taker: LogDir, size: int) -> None:
        """Subtract the size of a moved replica from the free space of `taker`, and of all log dirs on the same disk.

        Two log dirs of a broker are taken to be on the same disk if their disks report the same sizes.
        """
        space = self._placement.spaces[taker]
        for each in self._dirs_of[taker.broker]:
            if self._placement.spaces[each] == space:
                self._room[each] -= size

    def _size(self, partition: TopicPartition) -> int:
        """Return the bytes of the partition's largest replica, the most that a move may copy."""
        return max(replica.bytes for replica in self._placement.replicas[partition].values())

    def _row(self, partition: TopicPartition, giver: int, taker: int) -> tuple[int, ...]:
        return tuple(taker if broker == giver else broker for broker in self._rows[partition])

    def _racks(self, row: Sequence[int]) -> int:
        return len({self._placement.racks[broker] for broker in row})


def _movable(placement: Placement) -> Iterator[tuple[TopicPartition, Replica]]:
    """Yield the replicas that the plan may move, with their partitions.

    A replica may be moved if it is not empty, and if all replicas of its partition are online. The partitions in
    `left_alone` are not moved.
    """
    for partition, row in placement.rows.items():
        held = placement.replicas.get(partition, {})
        if partition not in placement.left_alone and set(row) == set(held) and set(row) <= set(placement.racks):
            yield from ((partition, replica) for replica in held.values() if replica.bytes)
