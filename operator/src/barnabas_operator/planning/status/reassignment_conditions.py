"""The conditions of a Cluster about reassignments in progress, rebalance plans, and proposed rebalances."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from barnabas_core.topic_partition import TopicPartition
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.rebalance_request import APPROVAL, APPROVED
from barnabas_operator.planning.refusal import listed
from barnabas_operator.planning.topics.move_plan import MovePlan
from barnabas_operator.planning.topics.named_rebalance import NamedProgress
from barnabas_operator.planning.topics.rebalance import Rebalance
from barnabas_operator.planning.topics.topic_status import REPLICAS_MOVING
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import REBALANCE_PROPOSED, REBALANCING, Condition

UNEVEN: Final = "BrokersUneven"
PLAN_UNDER_WAY: Final = "PlanUnderWay"
PLAN_DONE: Final = "PlanDone"
PLAN_REFUSED: Final = "PlanRefused"
HELD_UP: Final = (
    "the next moves begin when all brokers are ready, all replicas are in sync, and no broker restarts or is removed"
)


def reassignment_conditions(
    cluster: Cluster, now: str, state: ClusterState | None, ahead: MovePlan | None
) -> Iterator[Condition]:
    """Yield the conditions about reassignments, which do not affect `Ready`; `now` is in RFC 3339."""
    moving = {name: len(topic.moving) for name, topic in sorted(state.topics.items()) if topic.moving} if state else {}
    waiting = ahead.waiting if ahead is not None else 0
    stays = f"{_lacking(ahead.without_room)}{_refused(ahead.refused)}" if ahead is not None else ""
    if moving or waiting or stays:
        of_topics = listed([f"{name} ({count})" for name, count in moving.items()]) or "none yet"
        later = f"; {waiting} partitions wait for their reassignment" if waiting else ""
        message = f"partitions of these topics are being reassigned: {of_topics}{later}{stays}"
        yield condition(cluster, REPLICAS_MOVING, "True", REPLICAS_MOVING, message, now)
    if ahead is not None and ahead.named is not None:
        yield _of_plan(cluster, ahead.named, now)
    if ahead is not None and ahead.rebalance is not None and not ahead.rebalance.is_approved:
        message = f"{_described(ahead.rebalance)}; to approve the rebalance, run {_approval(cluster)}"
        yield condition(cluster, REBALANCE_PROPOSED, "True", UNEVEN, message, now)


def _of_plan(cluster: Cluster, plan: NamedProgress, now: str) -> Condition:
    if plan.refusal:
        return condition(cluster, REBALANCING, "False", PLAN_REFUSED, plan.refusal, now)
    left_out = f"; these partitions were left out: {listed(plan.left_out)}" if plan.left_out else ""
    held_up = f"; {HELD_UP}" if plan.is_held_up else ""
    rest = (
        f"; {plan.unlisted} more partitions did not fit into the plan; for them, run the job skew again"
        if plan.unlisted
        else ""
    )
    moved = f"{plan.done} of {plan.total} partitions {plan_words(plan.run)}"
    message = f"{moved}{held_up}{rest}{left_out}"
    if plan.is_done:
        return condition(cluster, REBALANCING, "False", PLAN_DONE, message, now)
    return condition(cluster, REBALANCING, "True", PLAN_UNDER_WAY, message, now)


def plan_words(run: str) -> str:
    """Return the words that identify the rebalance plan of the MaintenanceJob `run` in the message of a condition."""
    return f"of the plan of MaintenanceJob {run} are moved"


def _lacking(without_room: Iterable[TopicPartition]) -> str:
    """Return a description of the partitions that no broker has enough space for, or an empty text."""
    names = [f"{topic}-{number}" for topic, number in without_room]
    what_helps = "enlarge volumes, add brokers or delete records"
    return f"; no broker has enough free space for {listed(names)}; {what_helps}" if names else ""


def _refused(said: Sequence[str]) -> str:
    return "".join(f"; {each}" for each in said[:1]) + (f" and {len(said) - 1} more" if len(said) > 1 else "")


def _described(rebalance: Rebalance) -> str:
    brokers = ", ".join(map(str, rebalance.to_brokers))
    how_much = f"{rebalance.partitions} partitions ({rebalance.size_bytes} bytes)"
    if len(rebalance.to_brokers) == 1:
        return f"broker {brokers} has less data than the other brokers, so {how_much} can move to that broker"
    return f"brokers {brokers} have less data than the other brokers, so {how_much} can move to these brokers"


def _approval(cluster: Cluster) -> str:
    command = f"kubectl annotate clusters.barnabas.dev {cluster.metadata.name} {APPROVAL}={APPROVED}"
    return f"`{command}`, or set spec.rebalance to Automatic"
