"""The policies for topics that existed before, and for changes that others make."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from barnabas_operator.planning.cluster_state import ClusterState, TopicState, Trouble
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.topics.reconcile_plan import plan_evacuation
from barnabas_operator.planning.topics.replica_moves import AlterConfigs, CreateTopic
from barnabas_operator.planning.topics.topic_plan import TopicPlan, place_partitions, plan_topics, topic_status
from barnabas_operator.resources.kind import ObjectMeta, condition_of
from barnabas_operator.resources.topic import Topic, TopicSpec, TopicStatus

BROKERS: Mapping[int, str | None] = {0: None, 1: None, 2: None}
DECLARED = Topic(
    metadata=ObjectMeta(name="flights", uid="a-uid", generation=1),
    spec=TopicSpec(partitions=3, replicas=2, config={"retention.ms": 5}, adopt=False),
)
PLACED = place_partitions(DECLARED, BROKERS, range(3), 2)
ELSEWHERE = (PLACED[1], PLACED[2], PLACED[0])
OURS = replace(DECLARED, status=TopicStatus(topic_name="flights", topic_id="id"))
SET = {"retention.ms": "5"}


def plan(topic: Topic, found: TopicState | None) -> TopicPlan:
    topics = {"flights": found} if found is not None else {}
    (planned,) = plan_topics([topic], ClusterState(racks=BROKERS, topics=topics))
    return planned


REFUSAL = "topic flights existed before the Topic, and spec.adopt is false; to adopt the topic, set spec.adopt to true"
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
def test_an_existing_topic_is_left_unchanged_if_it_may_not_be_adopted(name: str) -> None:
    topic, found, is_planned = ADOPTION[name]
    planned = plan(topic, found)
    assert (planned.refusal is None) == is_planned
    if planned.refusal is not None:
        assert planned.refusal == ("ResourceConflict", REFUSAL)
        assert planned.steps == ()


def test_a_topic_that_others_recreated_is_refused_in_every_round() -> None:
    topic, other = OURS, TopicState("other", ELSEWHERE, {})
    for _round in range(2):
        planned = plan(topic, other)
        assert planned.refusal is not None
        assert (
            "was deleted and created again by others (the topic id was id, and is now other)" in planned.refusal.message
        )
        assert planned.steps == ()
        topic = after(topic, planned, other)
    assert plan(topic, TopicState("id", ELSEWHERE, {})).refusal is None, "the resource's own topic may come back"


def test_a_paused_resource_adopts_no_topic() -> None:
    paused = replace(DECLARED, spec=replace(DECLARED.spec, pause=True))
    found = TopicState("id", ELSEWHERE, {})
    goes_on = replace(after(paused, plan(paused, found), found), spec=DECLARED.spec)
    assert plan(goes_on, found).refusal == ("ResourceConflict", REFUSAL)


def test_an_existing_topic_is_adopted_by_default_as_in_strimzi() -> None:
    topic = replace(DECLARED, spec=TopicSpec(config={"retention.ms": 5}))
    assert plan(topic, TopicState("id", ELSEWHERE, {})).steps == (AlterConfigs("flights", SET),)


def ready(topic: Topic, *, policy: str) -> Topic:
    """The resource after a round in which everything was as declared."""
    declared = replace(topic, spec=replace(topic.spec, drift_policy=policy))
    return replace(declared, status=topic_status(declared, TopicState("id", PLACED, SET), None, "T1"))


CHANGED = TopicState("id", PLACED, {"retention.ms": "7"})
REPAIR = (AlterConfigs("flights", SET),)


def test_changes_by_others_are_undone_under_the_policy_revert() -> None:
    assert plan(ready(DECLARED, policy="Revert"), CHANGED).steps == REPAIR


def test_changes_by_others_are_only_reported_under_the_policy_warn() -> None:
    topic = ready(DECLARED, policy="Warn")
    planned = plan(topic, CHANGED)
    said = "spec.driftPolicy is Warn, so these steps were skipped: set configs of flights: retention.ms=5"
    assert (planned.steps, planned.drift) == ((), (said,))
    status = topic_status(topic, CHANGED, None, "T2", drift=planned.drift)
    told = {each.type: (each.status, each.message) for each in status.conditions}
    assert told["Ready"] == ("True", "")
    assert told["Drifted"] == ("True", said)
    again = plan(replace(topic, status=status), CHANGED)
    assert again.drift == planned.drift, "the warning itself does not end the warning"


def test_the_condition_drifted_ends_with_the_drift() -> None:
    topic = ready(DECLARED, policy="Warn")
    warned = replace(topic, status=topic_status(topic, CHANGED, None, "T2", drift=plan(topic, CHANGED).drift))
    repaired = topic_status(warned, TopicState("id", PLACED, SET), None, "T3")
    assert condition_of(repaired.conditions, "Drifted") is None


def test_fewer_replicas_by_others_are_reported_and_the_topic_stays_ready_under_the_policy_warn() -> None:
    topic = ready(DECLARED, policy="Warn")
    fewer = TopicState("id", tuple(row[:1] for row in PLACED), SET)
    planned = plan(topic, fewer)
    assert planned.steps == ()
    assert planned.drift[0].startswith(
        "spec.driftPolicy is Warn, so these steps were skipped: move replicas of flights: 0 to"
    )
    status = topic_status(topic, fewer, None, "T2", drift=planned.drift)
    assert [each.reason for each in status.conditions] == ["Reconciled", "ChangedByOthers"]


def test_a_new_generation_of_the_resource_is_applied_under_the_policy_warn() -> None:
    topic = ready(DECLARED, policy="Warn")
    edited = replace(topic, metadata=replace(topic.metadata, generation=2))
    assert plan(edited, CHANGED).steps == REPAIR


def test_a_declaration_that_was_never_applied_is_applied_under_the_policy_warn() -> None:
    topic = ready(DECLARED, policy="Warn")
    failed = replace(topic, status=topic_status(topic, CHANGED, Refusal("KafkaError", "no"), "T2"))
    assert plan(failed, CHANGED).steps == REPAIR


def test_a_deleted_topic_is_created_again_under_the_policy_warn() -> None:
    (step,) = plan(ready(DECLARED, policy="Warn"), None).steps
    assert isinstance(step, CreateTopic)


def test_a_broker_to_be_removed_is_emptied_under_the_policy_warn_too() -> None:
    topic = ready(DECLARED, policy="Warn")
    state = ClusterState(racks=BROKERS, topics={"flights": TopicState("id", PLACED, SET)}).with_brokers(2)
    plans = plan_topics([topic], state)
    assert plan_evacuation(plans, state, {}) != ()
    assert plans[0].drift == (), "these moves are the operator's own, and no drift"


def test_configs_that_others_set_during_moves_stay_under_the_policy_warn() -> None:
    topic, moving = ready(DECLARED, policy="Warn"), with_a_move(CHANGED)
    topic = after(topic, plan(topic, TopicState("id", PLACED, SET)), with_a_move(TopicState("id", PLACED, SET)))
    assert conditions(topic)["Ready"] == ("False", "1 of 3 partitions are being reassigned")
    assert plan(topic, moving).steps == ()
    there = after(topic, plan(topic, moving), CHANGED)
    assert plan(there, CHANGED).drift == (
        "spec.driftPolicy is Warn, so these steps were skipped: set configs of flights: retention.ms=5",
    )
    undone = replace(topic, spec=replace(topic.spec, drift_policy="Revert"))
    assert plan(undone, moving).steps == REPAIR


def with_a_move(found: TopicState) -> TopicState:
    """Return the same topic while its first partition gets other replicas."""
    return TopicState(found.topic_id, found.partitions, found.overrides, {0: found.partitions[0]})


RAISED = TopicState("id", (*PLACED, PLACED[0]), {"retention.ms": "7"})
TOO_MANY = "Decreasing partitions is not supported: spec.partitions is 3, but the topic has 4; allowed: 4 or more"


def after(topic: Topic, planned: TopicPlan, found: TopicState) -> Topic:
    """The resource after a round with that plan."""
    status = topic_status(topic, found, planned.refusal, "T2", drift=planned.drift)
    return replace(topic, status=status)


def conditions(topic: Topic) -> Mapping[str, tuple[str, str]]:
    assert topic.status is not None
    return {each.type: (each.status, each.message) for each in topic.status.conditions}


def test_partitions_added_by_others_do_not_prevent_undoing_their_config_changes() -> None:
    topic = ready(DECLARED, policy="Revert")
    for _round in range(2):
        planned = plan(topic, RAISED)
        assert (planned.steps, planned.refusal) == (REPAIR, ("NotSupported", TOO_MANY))
        topic = after(topic, planned, RAISED)
        assert conditions(topic) == {"Ready": ("False", TOO_MANY), "Drifted": ("True", f"not undone: {TOO_MANY}")}


def test_every_change_by_others_is_reported_under_the_policy_warn() -> None:
    topic = ready(DECLARED, policy="Warn")
    for _round in range(2):
        planned = plan(topic, RAISED)
        assert (planned.steps, planned.refusal) == ((), None)
        topic = after(topic, planned, RAISED)
        left = "spec.driftPolicy is Warn, so these steps were skipped: set configs of flights: retention.ms=5"
        assert conditions(topic) == {"Ready": ("True", ""), "Drifted": ("True", f"not undone: {TOO_MANY}; {left}")}


def test_a_resource_that_declares_fewer_partitions_is_refused_as_a_whole() -> None:
    topic = after(ready(DECLARED, policy="Revert"), plan(ready(DECLARED, policy="Revert"), RAISED), RAISED)
    fewer = replace(topic.spec, partitions=2)
    edited = replace(topic, spec=fewer, metadata=replace(topic.metadata, generation=2))
    planned = plan(edited, RAISED)
    assert planned.steps == ()
    assert planned.refusal is not None
    assert "Drifted" not in conditions(after(edited, planned, RAISED))


def test_configs_are_set_back_while_replicas_removed_by_others_wait_for_a_broker() -> None:
    topic = ready(DECLARED, policy="Revert")
    fewer = TopicState("id", tuple((0,) for _ in PLACED), {"retention.ms": "7"})
    state = ClusterState(racks={0: None}, topics={"flights": fewer}).with_brokers(3)
    (planned,) = plan_topics([topic], state)
    waits = "spec.replicas is 2, but only 1 of 3 brokers are alive; waiting for broker 1, 2"
    assert (planned.steps, planned.refusal) == (REPAIR, ("ClusterNotReady", waits))


def test_an_offline_topic_counts_as_applied_under_the_policy_warn() -> None:
    topic = ready(DECLARED, policy="Warn")
    offline = [Trouble("flights", 0, missing=PLACED[0], in_sync=(), offline=True)]
    topic = replace(topic, status=topic_status(topic, TopicState("id", PLACED, SET), None, "T2", offline))
    assert conditions(topic)["Ready"][0] == "False"
    assert plan(topic, CHANGED).steps == ()
