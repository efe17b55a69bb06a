"""The plan of one reconciliation for all topics of a Cluster."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.topics.internal_topics import internal_configs
from barnabas_operator.planning.topics.move_plan import MovePlan, plan_moves
from barnabas_operator.planning.topics.replica_moves import ReplicaMoves
from barnabas_operator.planning.topics.throttled_moves import is_throttled, throttles
from barnabas_operator.planning.topics.topic_plan import TopicPlan, plan_deletions, plan_topics
from barnabas_operator.planning.topics.topic_steps import AlterConfigs, DeleteTopic, MoveReplicas, TopicStep


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
        steps = list(_merged(steps, throttles(wanted.topics, moves.begin, state)))
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
