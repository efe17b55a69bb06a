"""A topic whose resource was removed: only the very topic that the resource had is ever deleted."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from barnabas_core.errors import ErrorCode
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.cluster_state import ClusterState, DesiredState, TopicState
from barnabas_operator.planning.topics.replica_moves import DeleteTopic, TopicStep
from barnabas_operator.planning.topics.topic_plan import plan_deletions
from barnabas_operator.reconcile.topics.topic_reconciler import reconcile_topics
from barnabas_operator.reconcile.worker_environment import Seen
from barnabas_operator.resources.cluster import Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec, TopicStatus
from harness.brokers_memory import BrokersMemory

FOUND = TopicState("id", ((0,),) * 6, {})


def topic(name: str = "flights", *, owned: str | None = None, topic_id: str | None = "id", **spec: Any) -> Topic:
    status = TopicStatus(topic_name=owned, topic_id=topic_id) if owned else None
    return Topic(metadata=ObjectMeta(name=name), spec=TopicSpec(**spec), status=status)


DELETIONS: Mapping[str, tuple[Topic, list[Topic], tuple[TopicStep, ...], str | None]] = {
    "Delete deletes": (topic(owned="flights", deletion_policy="Delete"), [], (DeleteTopic("flights", "id"),), None),
    "Retain, the default, retains": (topic(owned="flights"), [], (), None),
    "Protect keeps topic and resource": (
        topic(owned="flights", deletion_policy="Protect"),
        [],
        (),
        "DeletionProtected",
    ),
    "a pause retains": (topic(owned="flights", deletion_policy="Delete", pause=True), [], (), None),
    "a topic that never was the resource's stays": (topic(deletion_policy="Delete"), [], (), None),
    "a topic just as the resource makes it is its own, though nobody could say so": (
        topic(partitions=8, deletion_policy="Delete"),
        [],
        (DeleteTopic("flights", "id"),),
        None,
    ),
    "a topic that was made again by the name of the resource's stays": (
        topic(owned="flights", topic_id="before", deletion_policy="Delete"),
        [],
        (),
        None,
    ),
    "a topic that was made again holds no protected resource": (
        topic(owned="flights", topic_id="before", deletion_policy="Protect"),
        [],
        (),
        None,
    ),
    "a topic that came after the resource's was gone stays": (
        topic(owned="flights", topic_id=None, partitions=9, deletion_policy="Delete", config={"retention.ms": 1}),
        [],
        (),
        None,
    ),
    "a topic that another resource declares stays": (
        topic(owned="flights", deletion_policy="Delete"),
        [topic("other", topic_name="flights")],
        (),
        None,
    ),
    "a topic that a broker does not show is deleted by its id, since the broker may be late": (
        topic(owned="gone", deletion_policy="Delete"),
        [],
        (DeleteTopic("gone", "id"),),
        None,
    ),
    "a topic that is gone and had no id needs no deletion": (
        topic(owned="gone", topic_id=None, deletion_policy="Delete"),
        [],
        (),
        None,
    ),
}


@pytest.mark.parametrize(("removed", "declared", "steps", "reason"), DELETIONS.values(), ids=DELETIONS.keys())
def test_a_removed_resource_deletes_only_its_own_topic_and_only_by_its_policy(
    removed: Topic, declared: list[Topic], steps: tuple[TopicStep, ...], reason: str | None
) -> None:
    (plan,) = plan_deletions([removed], declared, ClusterState({0: None}, {"flights": FOUND}))
    assert plan.steps == steps
    assert (plan.refusal.reason if plan.refusal else None) == reason


class BrokersThatRefuse(BrokersMemory):
    """Brokers that refuse deletions while another client creates the topic again."""

    def apply(self, steps: Sequence[TopicStep]) -> dict[str, StepRefused]:
        deletions = [step.topic for step in steps if isinstance(step, DeleteTopic)]
        self.topics |= {name: TopicState("another", FOUND.partitions, {}) for name in deletions}
        refused = dict.fromkeys(deletions, StepRefused(ErrorCode.NOT_CONTROLLER, None))
        return super().apply([step for step in steps if step.topic not in refused]) | refused


def test_a_retried_deletion_spares_a_topic_that_was_created_meanwhile() -> None:
    brokers = BrokersThatRefuse()
    brokers.topics["flights"] = FOUND
    cluster = Cluster(metadata=ObjectMeta(name="one"), spec=ClusterSpec())
    going, new = topic(owned="flights", deletion_policy="Delete"), topic("new")
    admin = cast(ClusterAdmin, brokers)
    first = reconcile_topics(admin, DesiredState(cluster, (new,), (going,)), "T", Seen(brokers.cluster_state()))
    assert [each.metadata.name for each in first.wanted.removed] == ["flights"]
    second = reconcile_topics(admin, first.wanted, "T", Seen(brokers.cluster_state()))
    assert (second.done, second.wanted.removed) == ([], ())
