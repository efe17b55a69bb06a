"""The progress of a rebalance that a run of the job `skew` has planned, and that a Cluster names. Pure.

Each reconciliation decides by the current state: a partition has moved, or has the replicas that the plan saw, or is
left out. So an operator that was killed goes on where it was.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.rebalance_request import NamedRebalance, PlannedPartition, SkewPlan
from barnabas_operator.planning.topics.log_dir_moves import LogDirMove, LogDirRoom, is_under_way, log_dir_moves
from barnabas_operator.planning.topics.rebalance import is_calm
from barnabas_operator.planning.topics.replica_moves import room
from barnabas_operator.planning.topics.topic_steps import MoveReplicas


class NamedProgress(NamedTuple):
    """The progress of a plan: partitions in place, of all; moves to begin; partitions that are left out, and why.

    `log_dir_moves` are those within brokers, which come last, and `within` counts these and those under way.
    `unlisted` partitions were planned, too, but the status of the run had no room for them. `is_held_up`: something is
    to move, and none of it begins now. `is_done`: nothing of it is left to move, and nothing moves.
    """

    run: str
    refusal: str = ""
    total: int = 0
    done: int = 0
    moves: tuple[MoveReplicas, ...] = ()
    log_dir_moves: tuple[LogDirMove, ...] = ()
    within: int = 0
    left_out: tuple[str, ...] = ()
    unlisted: int = 0
    is_held_up: bool = False
    is_done: bool = False


def progress(named: NamedRebalance, state: ClusterState, paused: Collection[str]) -> NamedProgress:
    """Return the progress. Moves begin only with all brokers alive and all replicas in sync. `paused` are topics."""
    if named.plan is None:
        return NamedProgress(named.run, named.refusal)
    left = _Left(named.plan, state, paused)
    found = [(each, left.why_not(each)) for each in named.plan.partitions]
    going = [each for each, why in found if why is None]
    moves = [each for each in going if not left.has_moved(each)]
    begin = [move for each in going for move in left.within(each) if not left.is_under_way(move)]
    return NamedProgress(
        run=named.run,
        total=len(found),
        done=sum(left.is_there(each) and not left.within(each) for each in going),
        moves=tuple(_steps(moves)) if is_calm(state) else (),
        log_dir_moves=tuple(begin) if is_calm(state) else (),
        within=len(begin) + left.under_way(),
        left_out=tuple(f"{each.topic}-{each.partition} ({why})" for each, why in found if why is not None),
        unlisted=named.unlisted,
        is_held_up=bool(moves or begin) and not is_calm(state),
    )


class _Left:
    """The planned partitions in their order: each takes its space from those after it."""

    def __init__(self, plan: SkewPlan, state: ClusterState, paused: Collection[str]) -> None:
        self._plan, self._ids, self._state, self._paused = plan, plan.topic_ids, state, paused
        self._room = room(state, state.disks) if state.disks is not None else None
        self._log_dirs = LogDirRoom(state.disks) if state.disks is not None else None

    def has_moved(self, planned: PlannedPartition) -> bool:
        """True if the partition has the planned replicas, or is moving to them."""
        return self._state.topics[planned.topic].targets[planned.partition] == planned.replicas

    def within(self, planned: PlannedPartition) -> list[LogDirMove]:
        """Return its moves between log dirs that are left; none before all of its replicas are on their brokers."""
        disks = self._state.disks
        return log_dir_moves(planned, disks) if disks is not None and self.is_there(planned) else []

    def is_under_way(self, move: LogDirMove) -> bool:
        """True if the move has begun."""
        return self._state.disks is not None and is_under_way(move, self._state.disks)

    def under_way(self) -> int:
        """Return how many copies between log dirs have begun, with those of partitions that are left out since."""
        disks = self._state.disks
        if disks is None:
            return 0
        return sum(is_under_way(move, disks) for each in self._plan.partitions for move in log_dir_moves(each, disks))

    def is_there(self, planned: PlannedPartition) -> bool:
        """True if the partition has the planned replicas, and no others."""
        return self._state.topics[planned.topic].partitions[planned.partition] == planned.replicas

    def why_not(self, planned: PlannedPartition) -> str | None:
        """Return the reason why the partition is left out; None if it moves, has moved or can move."""
        topic = self._state.topics.get(planned.topic)
        if topic is None:
            return "its topic was deleted"
        if topic.topic_id != self._ids.get(planned.topic):
            return "its topic was deleted and created again"
        if not 0 <= planned.partition < len(topic.targets):
            return "its topic has no such partition"
        if (misfit := _misfit(planned)) is not None:
            return misfit
        if self.has_moved(planned):
            return self._why_not_between_log_dirs(planned)
        if planned.topic in self._paused:
            return "its Topic is paused"
        if topic.targets[planned.partition] != planned.before:
            return "it has other replicas than when the plan was made"
        return self._no_home(planned)

    def _why_not_between_log_dirs(self, planned: PlannedPartition) -> str | None:
        """Return why replicas on the planned brokers cannot move to their log dirs; None if they can, or are there."""
        begin = [move for move in self.within(planned) if not self.is_under_way(move)]
        if not begin or self._log_dirs is None:
            return None
        return "its Topic is paused" if planned.topic in self._paused else self._log_dirs.why_not(begin)

    def _no_home(self, planned: PlannedPartition) -> str | None:
        partition, homes = TopicPartition(planned.topic, planned.partition), self._state.homes
        takers = set(planned.replicas) - set(planned.before)
        for broker in sorted(takers):
            if broker not in homes:
                return f"broker {broker} is not alive, or is being removed"
        if len({homes.get(broker) for broker in planned.replicas}) < len({homes.get(b) for b in planned.before}):
            return "it would be in fewer racks"
        if self._room is None or self._state.disks is None:
            return None
        for broker in sorted({*planned.replicas, *planned.before}):
            if broker not in self._state.disks.spaces:  # Then the partition's size is unknown, too.
                return f"broker {broker} does not report its free space"
        size = self._state.disks.sizes.get(partition, 0)
        for broker in sorted(takers):
            if self._room[broker] < size:
                return f"broker {broker} has no room"
        for broker in takers:
            self._room[broker] -= size
        return None


def _misfit(planned: PlannedPartition) -> str | None:
    """Return the problem of a planned partition that no run writes, but a person may."""
    dirs = planned.log_dirs
    if dirs is not None and len(dirs) != len(planned.replicas):
        return f"it has {len(dirs)} log_dirs; allowed: one for each of its replicas, {len(planned.replicas)}"
    if len(planned.replicas) != len(planned.before) or len(set(planned.replicas)) != len(planned.replicas):
        row = ",".join(map(str, planned.replicas)) or "none"
        return f"its replicas are to be {row}; allowed: as many as before, each on another broker"
    return None


def _steps(moves: Collection[PlannedPartition]) -> Iterator[MoveReplicas]:
    for name in sorted({each.topic for each in moves}):
        yield MoveReplicas(name, {each.partition: each.replicas for each in moves if each.topic == name})
