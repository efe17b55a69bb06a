"""The moves of replicas between log dirs of one broker that a rebalance plan asks for.

Brokers copy such replicas themselves, and continue after a restart. So the operator keeps no state of its own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.disk_space import Disks, LogDirContent
from barnabas_operator.planning.rebalance_request import PlannedPartition
from barnabas_operator.planning.topics.move_turns import is_full

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
