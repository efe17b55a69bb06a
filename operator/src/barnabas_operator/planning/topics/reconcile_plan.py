"""The plan of one reconciliation for all topics of a Cluster, with the moves of a rebalance.

Replicas move to brokers with less data than the others, such as new brokers. Each move takes a replica from a broker
above the average load, and gives the replica to the broker with the least load that has enough free space. The number
of racks of a partition never decreases.

A rebalance can also follow a plan that the job `skew` has made and that the annotation of a Cluster names. Each
reconciliation compares the plan with the current replicas: a partition has moved if it has the planned replicas. A
partition that has neither the planned replicas nor its replicas from before the plan is left out of the rebalance. The
operator stores no progress, and can continue the rebalance after a restart.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_core.topic_partition import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    TopicPartition,
    usual_min_isr,
)
from barnabas_operator.planning.brokers.local_properties import internal_replicas
from barnabas_operator.planning.brokers.pod_properties import MIN_ISR, THROTTLES
from barnabas_operator.planning.cluster_state import (
    APPROVAL,
    APPROVED,
    FOLLOWERS,
    LEADERS,
    THROTTLED,
    ClusterState,
    DesiredState,
    NamedRebalance,
    PlannedPartition,
    ReplicaIds,
    SkewPlan,
    TopicState,
    declared_texts,
)
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    DeleteTopic,
    LogDirMove,
    LogDirRoom,
    MoveReplicas,
    ReplicaMoves,
    TopicStep,
    begin_log_dir_moves,
    bytes_to_copy,
    copies_replicas,
    is_under_way,
    loads,
    log_dir_moves,
    partitions_in_sum,
    room,
    take_turns,
)
from barnabas_operator.planning.topics.topic_plan import TopicPlan, plan_deletions, plan_topics
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.topic import Topic

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


class NamedProgress(NamedTuple):
    """The progress of a rebalance plan: `done` of `total` partitions have been moved.

    `moves` are the next moves between brokers, and `log_dir_moves` the next moves between log dirs of one broker.
    `within` is the number of moves between log dirs that are in progress or ready to begin. `left_out` names the
    partitions that are not moved, with the reasons. `unlisted` partitions were planned but did not fit into the status
    of the MaintenanceJob. `is_held_up` is True if moves remain but none may begin now. `is_done` is True if no moves
    remain or are in progress.
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
    """Return the progress of the rebalance plan in `named`; `paused` holds the topics whose Topic is paused.

    Moves begin only while all brokers are alive and all replicas are in sync.
    """
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
    """The check of the planned partitions, one after the other.

    A checked partition reserves the disk space that it needs. Partitions that are checked later cannot use this space.
    """

    def __init__(self, plan: SkewPlan, state: ClusterState, paused: Collection[str]) -> None:
        self._plan, self._ids, self._state, self._paused = plan, plan.topic_ids, state, paused
        self._room = room(state, state.disks) if state.disks is not None else None
        self._log_dirs = LogDirRoom(state.disks) if state.disks is not None else None

    def has_moved(self, planned: PlannedPartition) -> bool:
        """True if the partition has the planned replicas, or is being reassigned to them."""
        return self._state.topics[planned.topic].targets[planned.partition] == planned.replicas

    def within(self, planned: PlannedPartition) -> list[LogDirMove]:
        """Return the remaining moves between log dirs; no moves until all replicas are on the planned brokers."""
        disks = self._state.disks
        return log_dir_moves(planned, disks) if disks is not None and self.is_there(planned) else []

    def is_under_way(self, move: LogDirMove) -> bool:
        """True if the move between log dirs has begun."""
        return self._state.disks is not None and is_under_way(move, self._state.disks)

    def under_way(self) -> int:
        """Return the number of copies between log dirs that are in progress.

        Copies of partitions that are left out of the rebalance count, too.
        """
        disks = self._state.disks
        if disks is None:
            return 0
        return sum(is_under_way(move, disks) for each in self._plan.partitions for move in log_dir_moves(each, disks))

    def is_there(self, planned: PlannedPartition) -> bool:
        """True if the current replicas of the partition are exactly the planned replicas."""
        return self._state.topics[planned.topic].partitions[planned.partition] == planned.replicas

    def why_not(self, planned: PlannedPartition) -> str | None:
        """Return why the partition is left out of the rebalance, or None if it has moved or can move.

        If the partition can move, reserve its disk space.
        """
        topic = self._state.topics.get(planned.topic)
        if topic is None:
            return "the topic was deleted"
        if topic.topic_id != self._ids.get(planned.topic):
            return "the topic was deleted and created again"
        if not 0 <= planned.partition < len(topic.targets):
            return "the topic has no such partition"
        if (misfit := _misfit(planned)) is not None:
            return misfit
        if self.has_moved(planned):
            return self._why_not_between_log_dirs(planned)
        if planned.topic in self._paused:
            return "the Topic is paused"
        if topic.targets[planned.partition] != planned.before:
            return "the replicas have changed since the plan was made"
        return self._no_home(planned)

    def _why_not_between_log_dirs(self, planned: PlannedPartition) -> str | None:
        """Return why replicas cannot move to the planned log dirs, or None if the replicas can move or have moved."""
        begin = [move for move in self.within(planned) if not self.is_under_way(move)]
        if not begin or self._log_dirs is None:
            return None
        return "the Topic is paused" if planned.topic in self._paused else self._log_dirs.why_not(begin)

    def _no_home(self, planned: PlannedPartition) -> str | None:
        partition, homes = TopicPartition(planned.topic, planned.partition), self._state.homes
        takers = set(planned.replicas) - set(planned.before)
        for broker in sorted(takers):
            if broker not in homes:
                return f"broker {broker} is not alive, or is being removed"
        if len({homes.get(broker) for broker in planned.replicas}) < len({homes.get(b) for b in planned.before}):
            return "the planned replicas would be in fewer racks"
        if self._room is None or self._state.disks is None:
            return None
        for broker in sorted({*planned.replicas, *planned.before}):
            # A broker that does not report its free space does not report the sizes of its replicas either.
            if broker not in self._state.disks.log_dirs:
                return f"broker {broker} does not report its free space"
        size = self._state.disks.sizes.get(partition, 0)
        for broker in sorted(takers):
            if self._room[broker] < size:
                return f"broker {broker} has too little free space"
        for broker in takers:
            self._room[broker] -= size
        return None


def _misfit(planned: PlannedPartition) -> str | None:
    """Return what is wrong with a planned partition, for example after a manual change of the plan; None if valid."""
    dirs = planned.log_dirs
    if dirs is not None and len(dirs) != len(planned.replicas):
        return f"the plan has {len(dirs)} log_dirs; allowed: one for each replica, in total {len(planned.replicas)}"
    if len(planned.replicas) != len(planned.before) or len(set(planned.replicas)) != len(planned.replicas):
        row = ",".join(map(str, planned.replicas)) or "none"
        return f"the planned replicas are {row}; allowed: as many replicas as before, each on a different broker"
    return None


def _steps(moves: Collection[PlannedPartition]) -> Iterator[MoveReplicas]:
    for name in sorted({each.topic for each in moves}):
        yield MoveReplicas(name, {each.partition: each.replicas for each in moves if each.topic == name})


_FACTORS: Final[Mapping[str, str]] = {
    CONSUMER_OFFSETS: "offsets.topic.replication.factor",
    TRANSACTION_STATE: "transaction.state.log.replication.factor",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.replication.factor",
}
_MIN_ISRS: Final[Mapping[str, str]] = {
    TRANSACTION_STATE: "transaction.state.log.min.isr",
    SHARE_GROUP_STATE: "share.coordinator.state.topic.min.isr",
}
WITH_CONFIGS: Final = frozenset(_MIN_ISRS)
"""The internal topics that `internal_configs` changes."""
_MIN_ISR_MAX: Final = 2
"""The default of `transaction.state.log.min.isr` and of `share.coordinator.state.topic.min.isr`."""


def internal_factors(cluster: Cluster) -> dict[str, int]:
    """Return, by topic, the replication factor in spec.config, or else the number of brokers, up to three."""
    declared, usual = declared_texts(cluster.spec.config), internal_replicas(cluster)
    return {topic: int(declared.get(name, usual)) for topic, name in _FACTORS.items()}


def internal_configs(cluster: Cluster, state: ClusterState) -> Iterator[AlterConfigs]:
    """Yield the steps that set `min.insync.replicas` of the topics WITH_CONFIGS, if they need a change.

    Without a value in spec.config, the default depends on the current or the wanted number of replicas, whichever is
    lower.
    """
    for topic, setting in _MIN_ISRS.items():
        found = state.topics.get(topic)
        if found is None or not found.partitions:
            continue
        fewest = min(internal_factors(cluster)[topic], *map(len, found.partitions))
        declared = declared_texts(cluster.spec.config).get(setting)
        wanted = declared or str(usual_min_isr(_MIN_ISR_MAX, fewest))
        if found.overrides.get(MIN_ISR) != wanted:
            yield AlterConfigs(topic, {MIN_ISR: wanted})


class MovePlan(NamedTuple):
    """The moves of one reconciliation, which the status of the Cluster reports.

    `begin` are the moves between brokers that begin now. `waiting` is the number of partitions that wait to be moved.
    `rebalance` is proposed or in progress. `is_rebalanced` is True if a requested rebalance is done. `without_room` are
    the partitions for which no broker has enough space. `refused` holds the errors of the brokers about topics without
    a Topic resource.
    """

    begin: tuple[MoveReplicas, ...] = ()
    waiting: int = 0
    rebalance: Rebalance | None = None
    is_rebalanced: bool = False
    without_room: tuple[TopicPartition, ...] = ()
    refused: Sequence[str] = ()
    named: NamedProgress | None = None
    """The progress of the rebalance plan that the Cluster's annotation names."""
    log_dir_moves: tuple[LogDirMove, ...] = ()
    """The moves between log dirs that begin now; empty while replicas move between brokers."""
    needs_disks: bool = False
    """True if replicas may be copied, so that the plan needs the sizes of replicas and the free space of brokers."""

    @property
    def are_within(self) -> bool:
        """True if replicas are moving between log dirs of a broker."""
        return self.named is not None and self.named.within > 0


def plan_moves(
    wanted: DesiredState, state: ClusterState, plans: Sequence[TopicPlan], of_topics: ReplicaMoves
) -> MovePlan:
    """Return the moves of the declared topics, which `of_topics` has planned in `plans`, and of all other topics."""
    of_others = ReplicaMoves(state)
    moves = [step for plan in plans for step in plan.steps if isinstance(step, MoveReplicas)]
    moves += plan_evacuation(plans, state, internal_factors(wanted.cluster), of_others)
    is_named = wanted.named is not None and wanted.named.plan is not None
    needs_disks = is_named or _goes_on(wanted, state) or is_uneven(state) or copies_replicas(moves, state)
    going = {TopicPartition(move.topic, number) for move in moves for number in move.assignments}
    named = progress(wanted.named, state, _paused(wanted)) if wanted.named is not None else None
    rebalance = None if moves else _rebalance(wanted, state, named)
    if rebalance is not None and rebalance.is_approved:
        moves += rebalance.moves
    is_done = not moves and not state.is_moving and is_calm(state) and state.knows_disks
    if named is not None:
        named = named._replace(is_done=is_done and not named.refusal and not named.within)
    turns = take_turns(moves, state)
    return MovePlan(
        turns.begin,
        turns.waiting,
        rebalance,
        is_rebalanced=named.is_done if named is not None else is_done and is_asked_for(wanted.cluster),
        without_room=tuple(sorted((of_topics.without_room | of_others.without_room) - going)),
        named=named,
        log_dir_moves=_between_log_dirs(named, state) if not moves else (),
        needs_disks=needs_disks,
    )


def plan_evacuation(
    plans: Iterable[TopicPlan], cluster: ClusterState, factors: Mapping[str, int], moves: ReplicaMoves | None = None
) -> tuple[MoveReplicas, ...]:
    """Return the moves that empty the brokers to be removed, also for topics without a Topic resource.

    The result also has the moves that change the replication factor of internal topics to that in `factors`. A topic
    is not moved if `plans` already move the topic, or if it needs more brokers than are available. `moves` chooses the
    brokers that get replicas.
    """
    moved = {step.topic for plan in plans for step in plan.steps if isinstance(step, MoveReplicas)}
    moves, followed = moves or ReplicaMoves(cluster), {} if cluster.awaited else factors
    names = (
        name
        for name, topic in sorted(cluster.topics.items())
        if name not in moved and (cluster.leaving or name in followed) and _fits(topic, followed.get(name), cluster)
    )
    return tuple(step for name in names if (step := moves.of_topic(name, followed.get(name))) is not None)


def _fits(topic: TopicState, factor: int | None, cluster: ClusterState) -> bool:
    return (factor or max(map(len, topic.targets))) <= len(cluster.homes)


def _between_log_dirs(named: NamedProgress | None, state: ClusterState) -> tuple[LogDirMove, ...]:
    if named is None or state.disks is None or state.is_moving:
        return ()
    return begin_log_dir_moves(named.log_dir_moves, state.disks)


def _paused(wanted: DesiredState) -> set[str]:
    return {topic.topic_name for topic in wanted.topics if topic.spec.pause}


def _goes_on(wanted: DesiredState, state: ClusterState) -> bool:
    """True if a rebalance was requested, or one that spec.rebalance allows is in progress."""
    return is_asked_for(wanted.cluster) or (is_approved(wanted.cluster) and state.is_moving)


def _rebalance(wanted: DesiredState, state: ClusterState, named: NamedProgress | None) -> Rebalance | None:
    """Return the rebalance to carry out or to propose, or None if there is none.

    A valid plan that the Cluster's annotation names comes first. Otherwise the operator plans the rebalance.
    """
    if named is not None and not named.refusal:
        return _described(named.moves, state, is_approved=True)
    if not _goes_on(wanted, state) and not is_uneven(state):
        return None
    return _described(plan_rebalance(state, _paused(wanted)), state, is_approved=is_approved(wanted.cluster))


def _described(moves: tuple[MoveReplicas, ...], state: ClusterState, *, is_approved: bool) -> Rebalance | None:
    if not moves:
        return None
    size_bytes = bytes_to_copy(moves, state)
    return Rebalance(moves, partitions_in_sum(moves), size_bytes, takers(moves, state), is_approved)


class ReconcilePlan(NamedTuple):
    """The plan of one reconciliation. `steps` are carried out now, including the moves that begin now."""

    topics: tuple[TopicPlan, ...]
    deletions: tuple[TopicPlan, ...]
    steps: tuple[TopicStep, ...]
    moves: MovePlan


def plan_reconcile(wanted: DesiredState, state: ClusterState) -> ReconcilePlan:
    """Return the plan that brings the cluster closer to the declared state."""
    replica_moves = ReplicaMoves(state)
    topics = plan_topics(wanted.topics, state, replica_moves)
    deletions = plan_deletions(wanted.removed, wanted.topics, state)
    moves = plan_moves(wanted, state, topics, replica_moves)
    steps: list[TopicStep] = [
        step for plan in (*topics, *deletions) for step in plan.steps if not isinstance(step, MoveReplicas)
    ]
    steps += internal_configs(wanted.cluster, state)
    if is_throttled(wanted.cluster):
        steps = list(_merged(steps, _throttles(wanted.topics, moves.begin, state)))
    return ReconcilePlan(topics, deletions, (*steps, *moves.begin), moves)


def _merged(steps: Sequence[TopicStep], added: Iterable[AlterConfigs]) -> Iterator[TopicStep]:
    """Merge config changes into one step for each topic, because a request may contain each topic only once."""
    more = {step.topic: step.changes for step in added}
    going = {step.topic for step in steps if isinstance(step, DeleteTopic)}
    for step in steps:
        if isinstance(step, AlterConfigs):
            step = AlterConfigs(step.topic, {**step.changes, **more.pop(step.topic, {})})
        yield step
    yield from (AlterConfigs(topic, changes) for topic, changes in more.items() if topic not in going)


def is_throttled(cluster: Cluster) -> bool:
    """True if the Cluster declares a throttle rate, so that the operator sets the throttle configs of topics."""
    return any(cluster.spec.config.get(rate) is not None for rate in THROTTLES)


def _throttles(topics: Iterable[Topic], begin: Iterable[MoveReplicas], state: ClusterState) -> Iterator[AlterConfigs]:
    """Yield, for each topic, the change after which its throttle configs (KIP-73) list exactly its moving replicas.

    Brokers throttle only the listed replicas, so that replicas which were down catch up at full speed. Topics whose
    Topic resource declares throttle configs are left alone.
    """
    declared = {topic.topic_name for topic in topics if not topic.spec.config.keys().isdisjoint(THROTTLED)}
    beginning = {move.topic: move.assignments for move in begin}
    for name, topic in sorted(state.topics.items()):
        if name not in declared:
            wanted = _lists({**topic.moving, **beginning.get(name, {})}, topic)
            changes = {key: text for key, text in wanted.items() if topic.overrides.get(key) != text}
            if changes:
                yield AlterConfigs(name, changes)


def _lists(moves: Mapping[int, ReplicaIds], topic: TopicState) -> dict[str, str | None]:
    """Return the throttle configs: `LEADERS` lists all current and new replicas, `FOLLOWERS` all new replicas.

    The value of a config is None if it lists no replica. The values stay the same until a move has ended.
    """
    rows = enumerate(topic.partitions)
    senders = {number: tuple(sorted({*row, *moves[number]})) for number, row in rows if number in moves}
    return {LEADERS: _listed(senders), FOLLOWERS: _listed({number: moves[number] for number in senders})}


def _listed(rows: Mapping[int, ReplicaIds]) -> str | None:
    return ",".join(f"{number}:{broker}" for number, row in sorted(rows.items()) for broker in row) or None
