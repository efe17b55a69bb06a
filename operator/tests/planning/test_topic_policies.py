"""Whether topics that were there before are taken over, and what becomes of changes that others make."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.replica_placement import place_partitions
from barnabas_operator.planning.steps import AlterConfigs, CreateTopic, MoveReplicas
from barnabas_operator.planning.topic_checks import Refusal
from barnabas_operator.planning.topic_plan import TopicPlan, plan_evacuation, plan_topics
from barnabas_operator.planning.topic_status import topic_status
from barnabas_operator.resources.object_meta import ObjectMeta, condition_of
from barnabas_operator.resources.topic import Topic, TopicSpec, TopicStatus

BROKERS: Mapping[int, str | None] = {0: None, 1: None, 2: None}
DECLARED = Topic(
    metadata=ObjectMeta(name="flights", uid="a-uid", generation=1),
    spec=TopicSpec(partitions=3, replicas=2, config={"retention.ms": 5}, adopt=False),
)
PLACED = place_partitions(DECLARED, BROKERS, range(3), 2)
ELSEWHERE = (PLACED[1], PLACED[2], PLACED[0])
OURS = replace(DECLARED, status=TopicStatus(topic_name="flights"))
SET = {"retention.ms": "5"}


def plan(topic: Topic, found: TopicState | None) -> TopicPlan:
    topics = {"flights": found} if found is not None else {}
    (planned,) = plan_topics([topic], ClusterState(racks=BROKERS, topics=topics))
    return planned


REFUSAL = (
    "topic flights was there before and spec.adopt is false; "
    "allowed: true, which takes it over, or a topic that is not there"
)
ADOPTION: Mapping[str, tuple[Topic, TopicState | None, bool]] = {
    "one that is not there": (DECLARED, None, True),
    "one with other replicas": (DECLARED, TopicState("id", ELSEWHERE, SET), False),
    "one with other configs": (DECLARED, TopicState("id", PLACED, {}), False),
    "one with fewer partitions": (DECLARED, TopicState("id", ELSEWHERE[:2], SET), False),
    "one made by the resource when it had fewer partitions": (DECLARED, TopicState("id", PLACED[:2], SET), True),
    "one with more partitions": (DECLARED, TopicState("id", (*PLACED, PLACED[0]), SET), False),
    "one just as it is made by the resource": (DECLARED, TopicState("id", PLACED, SET), True),
    "the resource's own": (OURS, TopicState("id", ELSEWHERE, {}), True),
}


@pytest.mark.parametrize("name", ADOPTION)
def test_a_topic_that_was_there_is_left_alone_where_it_may_not_be_adopted(name: str) -> None:
    topic, found, is_planned = ADOPTION[name]
    planned = plan(topic, found)
    assert (planned.refusal is None) == is_planned
    if planned.refusal is not None:
        assert planned.refusal == ("ResourceConflict", REFUSAL)
        assert planned.steps == ()


def test_a_topic_that_was_there_is_adopted_by_default_as_strimzi_does() -> None:
    topic = replace(DECLARED, spec=TopicSpec(config={"retention.ms": 5}))
    assert plan(topic, TopicState("id", ELSEWHERE, {})).steps == (AlterConfigs("flights", SET),)


def ready(topic: Topic, *, policy: str) -> Topic:
    """The resource after a round in which everything was as declared."""
    declared = replace(topic, spec=replace(topic.spec, drift_policy=policy))
    return replace(declared, status=topic_status(declared, TopicState("id", PLACED, SET), None, "T1"))


CHANGED = TopicState("id", PLACED, {"retention.ms": "7"})
REPAIR = (AlterConfigs("flights", SET),)


def test_what_others_change_is_undone() -> None:
    assert plan(ready(DECLARED, policy="Revert"), CHANGED).steps == REPAIR


def test_what_others_change_is_only_told_where_drift_is_no_more_than_a_warning() -> None:
    topic = ready(DECLARED, policy="Warn")
    planned = plan(topic, CHANGED)
    assert (planned.steps, planned.drift) == ((), REPAIR)
    status = topic_status(topic, CHANGED, None, "T2", drift=planned.drift)
    told = {each.type: (each.status, each.message) for each in status.conditions}
    assert told["Ready"] == ("True", "")
    said = "spec.driftPolicy is Warn, so this was not done: set flights: retention.ms=5"
    assert told["Drifted"] == ("True", said)
    again = plan(replace(topic, status=status), CHANGED)
    assert again.drift == REPAIR, "the warning itself does not end the warning"


def test_the_warning_goes_with_the_drift() -> None:
    topic = ready(DECLARED, policy="Warn")
    warned = replace(topic, status=topic_status(topic, CHANGED, None, "T2", drift=REPAIR))
    repaired = topic_status(warned, TopicState("id", PLACED, SET), None, "T3")
    assert condition_of(repaired.conditions, "Drifted") is None


def test_fewer_replicas_by_others_are_told_and_the_resource_stays_ready() -> None:
    topic = ready(DECLARED, policy="Warn")
    fewer = TopicState("id", tuple(row[:1] for row in PLACED), SET)
    planned = plan(topic, fewer)
    assert planned.steps == ()
    assert isinstance(planned.drift[0], MoveReplicas)
    status = topic_status(topic, fewer, None, "T2", drift=planned.drift)
    assert [each.reason for each in status.conditions] == ["Reconciled", "ChangedByOthers"]


def test_what_the_resource_itself_declares_anew_is_done() -> None:
    topic = ready(DECLARED, policy="Warn")
    edited = replace(topic, metadata=replace(topic.metadata, generation=2))
    assert plan(edited, CHANGED).steps == REPAIR


def test_what_was_never_brought_about_is_done() -> None:
    topic = ready(DECLARED, policy="Warn")
    failed = replace(topic, status=topic_status(topic, CHANGED, Refusal("KafkaError", "no"), "T2"))
    assert plan(failed, CHANGED).steps == REPAIR


def test_a_topic_that_is_gone_is_made_again() -> None:
    (step,) = plan(ready(DECLARED, policy="Warn"), None).steps
    assert isinstance(step, CreateTopic)


def test_a_broker_that_goes_is_emptied_whatever_the_policy() -> None:
    topic = ready(DECLARED, policy="Warn")
    state = ClusterState(racks=BROKERS, topics={"flights": TopicState("id", PLACED, SET)}).with_brokers(2)
    plans = plan_topics([topic], state)
    assert plan_evacuation(plans, state) != ()
