"""Gather, plan, apply, status: brings a cluster's topics to what is declared, once."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from barnabas_operator.kafka.cluster_admin import ClusterAdmin, StepRefused
from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.memory import Wanted
from barnabas_operator.planning.steps import describe
from barnabas_operator.planning.topic_checks import KAFKA_ERROR, Refusal
from barnabas_operator.planning.topic_plan import TopicPlan, plan_deletions, plan_topics
from barnabas_operator.planning.topic_status import topic_status
from barnabas_operator.resources.topic import Topic


class Outcome(NamedTuple):
    """What is so after a reconciliation: the resources with their new status, and what was done, in words."""

    wanted: Wanted
    done: tuple[str, ...]


def reconcile(admin: ClusterAdmin, wanted: Wanted, now: str) -> Outcome:
    """One round. What a broker refuses becomes that topic's status. Raises ClusterUnreachable.

    Afterwards `wanted.removed` holds only those resources that stay although they are declared no more.
    """
    names = {topic.topic_name for topic in (*wanted.topics, *wanted.removed)}
    state = admin.cluster_state(names)
    plans = plan_topics(wanted.topics, state)
    deletions = plan_deletions(wanted.removed, wanted.topics, state)
    done: list[str] = []
    problems = [_apply(admin, plan, done.append) for plan in (*plans, *deletions)]
    if done:
        state = admin.cluster_state(names)
    topics = _with_status(plans, problems[: len(plans)], state, now)
    kept = _with_status(deletions, problems[len(plans) :], state, now)
    removed = tuple(topic for topic, problem in zip(kept, problems[len(plans) :], strict=True) if problem is not None)
    return Outcome(Wanted(wanted.cluster, topics, removed), tuple(done))


def _apply(admin: ClusterAdmin, plan: TopicPlan, did: Callable[[str], None]) -> Refusal | None:
    """Carries out a plan up to the first step that is refused; the refusal, the plan's own or a broker's."""
    for step in plan.steps:
        try:
            admin.apply(step)
        except StepRefused as error:
            return Refusal(KAFKA_ERROR, f"could not {describe(step)}: {error}")
        did(describe(step))
    return plan.refusal


def _with_status(
    plans: Iterable[TopicPlan], problems: Iterable[Refusal | None], state: ClusterState, now: str
) -> tuple[Topic, ...]:
    return tuple(
        replace(plan.resource, status=topic_status(plan.resource, _found(plan.resource, state), problem, now))
        for plan, problem in zip(plans, problems, strict=True)
    )


def _found(topic: Topic, state: ClusterState) -> TopicState | None:
    """The topic that the resource has, by the name that it had first."""
    before = topic.status.topic_name if topic.status else None
    return state.topics.get(before or topic.topic_name)
