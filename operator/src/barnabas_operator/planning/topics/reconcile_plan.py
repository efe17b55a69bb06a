"""The plan of one reconciliation for all topics of a Cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds, TopicState
from barnabas_operator.planning.desired_state import FOLLOWERS, LEADERS, THROTTLED, DesiredState, declared_texts
from barnabas_operator.planning.topics.rebalance import (
    NamedProgress,
    Rebalance,
    is_approved,
    is_asked_for,
    is_calm,
    is_uneven,
    plan_rebalance,
    progress,
    takers,
)
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    DeleteTopic,
    LogDirMove,
    MoveReplicas,
    ReplicaMoves,
    TopicStep,
    begin_log_dir_moves,
    bytes_to_copy,
    copies_replicas,
    partitions_in_sum,
    take_turns,
)
from barnabas_operator.planning.topics.topic_plan import TopicPlan, plan_deletions, plan_topics
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.topic import Topic

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
