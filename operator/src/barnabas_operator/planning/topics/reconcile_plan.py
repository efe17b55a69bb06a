"""The plan of one reconciliation for all topics of a Cluster."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas_operator.planning.brokers.pod_properties import THROTTLES
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds, TopicState
from barnabas_operator.planning.configs import FOLLOWERS, LEADERS, THROTTLED
from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.topics.internal_topics import internal_configs
from barnabas_operator.planning.topics.move_plan import MovePlan, plan_moves
from barnabas_operator.planning.topics.replica_moves import ReplicaMoves
from barnabas_operator.planning.topics.topic_plan import TopicPlan, plan_deletions, plan_topics
from barnabas_operator.planning.topics.topic_steps import AlterConfigs, DeleteTopic, MoveReplicas, TopicStep
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.topic import Topic


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
