"""The plan of one reconciliation for all topics of a Cluster, with the moves of replicas."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.topics.internal_topics import internal_configs, internal_factors
from barnabas_operator.planning.topics.log_dir_moves import LogDirMove, begin_log_dir_moves
from barnabas_operator.planning.topics.move_turns import bytes_to_copy, is_copy, partitions_in_sum, take_turns
from barnabas_operator.planning.topics.named_rebalance import NamedProgress, progress
from barnabas_operator.planning.topics.rebalance import (
    Rebalance,
    is_approved,
    is_asked_for,
    is_calm,
    is_uneven,
    plan_rebalance,
    takers,
)
from barnabas_operator.planning.topics.replica_moves import ReplicaMoves
from barnabas_operator.planning.topics.throttled_moves import is_throttled, throttles
from barnabas_operator.planning.topics.topic_plan import TopicPlan, plan_deletions, plan_evacuation, plan_topics
from barnabas_operator.planning.topics.topic_steps import AlterConfigs, DeleteTopic, MoveReplicas, TopicStep


class ReconcilePlan(NamedTuple):
    """The plan of one reconciliation.

    `steps` are carried out now. `waiting` is the number of partitions whose moves wait for a later reconciliation.
    `without_room` are the partitions that no broker has enough space for. `asks_for_disks` is True if the caller must
    read the sizes of replicas and disks, and then make the plan again. `is_rebalanced` is True if the requested
    rebalance is done.
    """

    topics: tuple[TopicPlan, ...]
    deletions: tuple[TopicPlan, ...]
    steps: tuple[TopicStep, ...]
    waiting: int
    without_room: tuple[TopicPartition, ...]
    rebalance: Rebalance | None
    asks_for_disks: bool
    is_rebalanced: bool
    named: NamedProgress | None = None
    """The progress of the rebalance plan that the Cluster's annotation names."""
    log_dir_moves: tuple[LogDirMove, ...] = ()
    """The moves between log dirs that begin now; empty while replicas move between brokers."""


def plan_reconcile(wanted: DesiredState, state: ClusterState) -> ReconcilePlan:
    """Return the plan that brings the cluster closer to the declared state."""
    of_topics, of_others = ReplicaMoves(state), ReplicaMoves(state)
    topics = plan_topics(wanted.topics, state, of_topics)
    deletions = plan_deletions(wanted.removed, wanted.topics, state)
    steps = [step for plan in (*topics, *deletions) for step in plan.steps]
    moves = [step for step in steps if isinstance(step, MoveReplicas)]
    moves += plan_evacuation(topics, state, internal_factors(wanted.cluster), of_others)
    going = {TopicPartition(move.topic, number) for move in moves for number in move.assignments}
    without_room = tuple(sorted((of_topics.without_room | of_others.without_room) - going))
    named = progress(wanted.named, state, _paused(wanted)) if wanted.named is not None else None
    rebalance = None if moves else _rebalance(wanted, state, named)
    if rebalance is not None and rebalance.is_approved:
        moves += rebalance.moves
    turns = take_turns(moves, state)
    others: list[TopicStep] = [step for step in steps if not isinstance(step, MoveReplicas)]
    others += internal_configs(wanted.cluster, state)
    if is_throttled(wanted.cluster):
        others = list(_merged(others, throttles(wanted.topics, turns.begin, state)))
    is_named = named is not None and not named.refusal
    is_asked = is_asked_for(wanted.cluster) or is_named
    copies = is_asked or rebalance is not None or any(is_copy(move, state) for move in moves)
    is_rebalanced = is_asked and not moves and not state.is_moving and is_calm(state) and state.knows_disks
    if named is not None:
        named = named._replace(is_done=is_named and is_rebalanced and not named.within)
        is_rebalanced = named.is_done
    log_dir_moves = _between_log_dirs(named, state) if not moves else ()
    asks_for_disks = state.disks is None and copies
    begin = (*others, *turns.begin)
    return ReconcilePlan(
        topics,
        deletions,
        begin,
        turns.waiting,
        without_room,
        rebalance,
        asks_for_disks,
        is_rebalanced,
        named,
        log_dir_moves,
    )


def _between_log_dirs(named: NamedProgress | None, state: ClusterState) -> tuple[LogDirMove, ...]:
    if named is None or state.disks is None or state.is_moving:
        return ()
    return begin_log_dir_moves(named.log_dir_moves, state.disks)


def _merged(steps: Sequence[TopicStep], added: Iterable[AlterConfigs]) -> Iterator[TopicStep]:
    """Merge config changes into one step for each topic, because a request may contain each topic only once."""
    more = {step.topic: step.changes for step in added}
    going = {step.topic for step in steps if isinstance(step, DeleteTopic)}
    for step in steps:
        if isinstance(step, AlterConfigs):
            step = AlterConfigs(step.topic, {**step.changes, **more.pop(step.topic, {})})
        yield step
    yield from (AlterConfigs(topic, changes) for topic, changes in more.items() if topic not in going)


def _paused(wanted: DesiredState) -> set[str]:
    return {topic.topic_name for topic in wanted.topics if topic.spec.pause}


def _rebalance(wanted: DesiredState, state: ClusterState, named: NamedProgress | None) -> Rebalance | None:
    """Return the rebalance to carry out or to propose, or None if there is none.

    A valid plan that the Cluster's annotation names comes first. Otherwise the operator plans the rebalance.
    """
    cluster = wanted.cluster
    if named is not None and not named.refusal:
        return _described(named.moves, state, is_approved=True)
    goes_on = is_asked_for(cluster) or (is_approved(cluster) and state.is_moving)
    if not goes_on and not is_uneven(state):
        return None
    return _described(plan_rebalance(state, _paused(wanted)), state, is_approved=is_approved(cluster))


def _described(moves: tuple[MoveReplicas, ...], state: ClusterState, *, is_approved: bool) -> Rebalance | None:
    if not moves:
        return None
    size_bytes = bytes_to_copy(moves, state)
    return Rebalance(moves, partitions_in_sum(moves), size_bytes, takers(moves, state), is_approved)
