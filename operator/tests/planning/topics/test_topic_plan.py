"""Tables of the steps for a declared topic and a state of the cluster."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec.structs import replace as struct_replace

from barnabas_operator.planning.cluster_state import ClusterState, TopicState, Trouble
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.topics.reconcile_plan import plan_evacuation
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    IncreasePartitions,
    MoveReplicas,
    TopicStep,
)
from barnabas_operator.planning.topics.topic_plan import plan_topics, topic_status
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec, TopicStatus

ONE_BROKER = ClusterState(racks={0: None}, topics={})
THREE_BROKERS = ClusterState(racks={0: None, 1: None, 2: None}, topics={}, default_replication_factor=3)


def topic(
    name: str = "flights",
    *,
    created: str | None = None,
    owned: str | None = None,
    topic_id: str | None = "id",
    **spec: object,
) -> Topic:
    status = TopicStatus(topic_name=owned, topic_id=topic_id) if owned else None
    meta = ObjectMeta(name=name, creation_timestamp=created)
    return Topic(metadata=meta, spec=TopicSpec(**spec), status=status)  # type: ignore[arg-type]


def having(partitions: int = 6, replicas: int = 1, brokers: int = 1, **overrides: str) -> ClusterState:
    placed = tuple(tuple((p + r) % brokers for r in range(replicas)) for p in range(partitions))
    configs = {name.replace("_", "."): value for name, value in overrides.items()}
    racks = dict.fromkeys(range(brokers))
    return ClusterState(racks=racks, topics={"flights": TopicState("id", placed, configs)})


def steps_of(declared: Topic, cluster: ClusterState) -> tuple[TopicStep, ...]:
    (plan,) = plan_topics([declared], cluster)
    assert plan.refusal is None
    return plan.steps


STEPS: Mapping[str, tuple[Topic, ClusterState, tuple[TopicStep, ...]]] = {
    "a topic that is not there is created": (
        topic(partitions=2, config={"retention.ms": 1000, "unclean.leader.election.enable": True, "segment.ms": None}),
        ONE_BROKER,
        (CreateTopic("flights", ((0,), (0,)), {"retention.ms": "1000", "unclean.leader.election.enable": "true"}),),
    ),
    "numbers that are left out are the brokers' own": (
        topic(),
        replace(ONE_BROKER, num_partitions=3),
        (CreateTopic("flights", ((0,), (0,), (0,)), {}),),
    ),
    "a topic in Kafka may have another name than the resource": (
        topic(topic_name="Flights_2013"),
        ONE_BROKER,
        (CreateTopic("Flights_2013", ((0,),), {}),),
    ),
    "more partitions are added": (
        topic(partitions=8),
        having(6),
        (IncreasePartitions("flights", 8, ((0,), (0,))),),
    ),
    "a number that is left out is left alone": (topic(), having(6), ()),
    "a config is set": (
        topic(config={"retention.ms": 5}),
        having(),
        (AlterConfigs("flights", {"retention.ms": "5"}),),
    ),
    "a config that is not declared goes back to its default": (
        topic(),
        having(retention_ms="5"),
        (AlterConfigs("flights", {"retention.ms": None}),),
    ),
    "a null leaves a config alone": (topic(config={"retention.ms": None}), having(retention_ms="5"), ()),
    "a config that drifted is set again": (
        topic(config={"retention.ms": 5}),
        having(retention_ms="6"),
        (AlterConfigs("flights", {"retention.ms": "5"}),),
    ),
    "a value written in another way is the same": (
        topic(config={"cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.50"}),
        having(cleanup_policy="compact,delete", min_cleanable_dirty_ratio="0.5"),
        (),
    ),
    "more replicas are put behind those that are there, on the brokers with the fewest": (
        topic(replicas=2),
        having(partitions=3, brokers=3),
        (MoveReplicas("flights", {0: (0, 1), 1: (1, 0), 2: (2, 0)}),),
    ),
    "fewer replicas: the last ones go": (
        topic(replicas=1),
        having(partitions=3, replicas=3, brokers=3),
        (MoveReplicas("flights", {0: (0,), 1: (1,), 2: (2,)}),),
    ),
    "fewer replicas: one that is not in sync goes first": (
        topic(replicas=2),
        replace(
            having(partitions=1, replicas=3, brokers=3),
            troubles=(Trouble("flights", 0, missing=(0,), in_sync=(1, 2), offline=False),),
        ),
        (MoveReplicas("flights", {0: (1, 2)}),),
    ),
    "replicas on their way are not sent twice": (
        topic(replicas=2),
        ClusterState(
            {0: None, 1: None}, {"flights": TopicState("id", ((0,), (1, 0)), {}, moving={0: (0, 1), 1: (1, 0)})}
        ),
        (),
    ),
    "partitions with several numbers of replicas get the same": (
        topic(replicas=2),
        ClusterState({0: None, 1: None}, {"flights": TopicState("id", ((0, 1), (1,)), {})}),
        (MoveReplicas("flights", {1: (1, 0)}),),
    ),
    "added partitions get the new number of replicas, too": (
        topic(partitions=2, replicas=2),
        ClusterState({0: None, 1: None}, {"flights": TopicState("id", ((0,),), {})}),
        (IncreasePartitions("flights", 2, ((1,),)), MoveReplicas("flights", {0: (0, 1), 1: (1, 0)})),
    ),
    "another rack goes before a broker with fewer replicas": (
        topic(replicas=2),
        ClusterState(
            {0: "x", 1: "x", 2: "y"}, {"flights": TopicState("id", ((0,),), {}), "o": TopicState("o", ((2,),), {})}
        ),
        (MoveReplicas("flights", {0: (0, 2)}),),
    ),
    "a pause leaves the topic alone": (topic(partitions=8, pause=True), having(6), ()),
    "partitions and configs change in one plan": (
        topic(partitions=7, config={"retention.ms": 5}),
        having(6),
        (IncreasePartitions("flights", 7, ((0,),)), AlterConfigs("flights", {"retention.ms": "5"})),
    ),
}


@pytest.mark.parametrize(("declared", "cluster", "steps"), STEPS.values(), ids=STEPS.keys())
def test_a_plan_has_the_steps_that_lead_to_the_declared_topic(
    declared: Topic, cluster: ClusterState, steps: tuple[TopicStep, ...]
) -> None:
    assert steps_of(declared, cluster) == steps


REFUSALS: Mapping[str, tuple[Topic, ClusterState, Refusal]] = {
    "fewer replicas than the Cluster needs in sync": (
        topic(replicas=1),
        replace(THREE_BROKERS, default_min_insync_replicas=2),
        Refusal(
            "InvalidConfig",
            "spec.replicas is 1; allowed: 2 or more, as min.insync.replicas of the Cluster requires; "
            "spec.config of the Topic may set a lower min.insync.replicas",
        ),
    ),
    "fewer partitions": (
        topic(partitions=3),
        having(6),
        Refusal(
            "NotSupported",
            "Decreasing partitions is not supported: spec.partitions is 3, but the topic has 6; allowed: 6 or more",
        ),
    ),
    "another name": (
        topic(topic_name="other", owned="flights"),
        having(),
        Refusal("NotSupported", "Changing spec.topicName is not supported: the topic name is other; allowed: flights"),
    ),
    "more replicas than brokers": (
        topic(replicas=3),
        ONE_BROKER,
        Refusal("NotEnoughBrokers", "spec.replicas is 3; allowed: 1 to 1, the number of brokers"),
    ),
    "more replicas than brokers that stay": (
        topic(replicas=3),
        THREE_BROKERS.with_brokers(2),
        Refusal("NotEnoughBrokers", "spec.replicas is 3; allowed: 1 to 2, the number of brokers"),
    ),
    "more replicas than there shall be brokers, of which two are away": (
        topic(replicas=4),
        ONE_BROKER.with_brokers(3),
        Refusal("NotEnoughBrokers", "spec.replicas is 4; allowed: 1 to 3, the number of brokers"),
    ),
    "as many replicas as there shall be brokers, of which two have not joined yet": (
        topic(replicas=3),
        ONE_BROKER.with_brokers(3),
        Refusal("ClusterNotReady", "spec.replicas is 3, but only 1 of 3 brokers are alive; waiting for broker 1, 2"),
    ),
    "more partitions while a broker rolls": (
        topic(partitions=9, replicas=3),
        replace(having(6, replicas=3, brokers=3), racks={0: None, 2: None}).with_brokers(3),
        Refusal("ClusterNotReady", "spec.replicas is 3, but only 2 of 3 brokers are alive; waiting for broker 1"),
    ),
    "another cluster than the one that has the topic": (
        struct_replace(topic(cluster="two"), status=TopicStatus(topic_name="flights", cluster="one")),
        having(),
        Refusal("NotSupported", "spec.cluster is two; allowed: one (a Topic cannot move to another Cluster)"),
    ),
    "the brokers' default of replicas, more than there are brokers": (
        topic(),
        replace(ONE_BROKER, default_replication_factor=3),
        Refusal("NotEnoughBrokers", "spec.replicas is 3; allowed: 1 to 1, the number of brokers"),
    ),
    "an unknown config": (
        topic(config={"retention.ns": 1}),
        ONE_BROKER,
        Refusal("InvalidConfig", "spec.config retention.ns: is not a setting of a topic; did you mean retention.ms?"),
    ),
    "a config out of range": (
        topic(config={"min.insync.replicas": 0}),
        having(),
        Refusal("InvalidConfig", "spec.config min.insync.replicas=0: must be an integer, at least 1"),
    ),
    "more in-sync replicas than replicas": (
        topic(replicas=3, config={"min.insync.replicas": 4}),
        THREE_BROKERS,
        Refusal("InvalidConfig", "spec.config min.insync.replicas=4: allowed: 1 to 3, the number of replicas"),
    ),
    "a name with a blank": (
        topic(topic_name="a b"),
        ONE_BROKER,
        Refusal(
            "InvalidTopicName",
            "spec.topicName: Topic name is invalid: 'a b' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
    ),
    "a name that metrics cannot tell from another": (
        topic(topic_name="a_b"),
        ClusterState({0: None}, {"a.b": TopicState("id", ((0,),), {})}),
        Refusal("InvalidTopicName", "topic a_b would have the same name in metrics as the topic a.b"),
    ),
    "a topic of the brokers": (
        topic(topic_name="__consumer_offsets", partitions=60),
        ONE_BROKER,
        Refusal(
            "NotSupported", "spec.topicName is __consumer_offsets, which is an internal topic; choose another name"
        ),
    ),
}


@pytest.mark.parametrize(("declared", "cluster", "refusal"), REFUSALS.values(), ids=REFUSALS.keys())
def test_a_topic_is_refused_with_reason_and_range(declared: Topic, cluster: ClusterState, refusal: Refusal) -> None:
    (plan,) = plan_topics([declared], cluster)
    assert plan.refusal == refusal
    assert plan.steps == ()


ALL_TOLD = {0: "a", 1: "b", 2: "c"}
RACKS = replace(THREE_BROKERS, racks=ALL_TOLD, registered=frozenset(ALL_TOLD))
AWAITED: Mapping[str, tuple[Topic, ClusterState, str | None]] = {
    "nobody": (topic(), RACKS.awaiting(3, ALL_TOLD), None),
    "a broker of a new cluster that has never joined": (topic(), RACKS.awaiting(5, ALL_TOLD), "3, 4"),
    "one of a cluster that has had topics": (
        topic("b"),
        replace(RACKS, topics=having().topics).awaiting(5, ALL_TOLD),
        None,
    ),
    "one that joined before and is dead": (
        topic(replicas=2),
        replace(RACKS, racks={0: "a", 2: "c"}).awaiting(3, ALL_TOLD),
        None,
    ),
    "one that was not told its settings": (topic(), RACKS.awaiting(3, {0: "a", 1: "b"}), "2"),
    "one that was told another rack": (topic(), RACKS.awaiting(3, ALL_TOLD | {1: "c"}), "1"),
    "one whose place nobody knows": (topic(), RACKS.awaiting(3, dict.fromkeys(range(3))), None),
    "one, where partitions are added": (topic(partitions=8), having(6).awaiting(1, {}), "0"),
    "one, where only a config is set": (topic(config={"retention.ms": 5}), having().awaiting(1, {}), None),
}


@pytest.mark.parametrize(("declared", "cluster", "awaited"), AWAITED.values(), ids=AWAITED.keys())
def test_replicas_are_placed_only_after_brokers_have_joined_and_know_their_racks(
    declared: Topic, cluster: ClusterState, awaited: str | None
) -> None:
    (plan,) = plan_topics([declared], cluster)
    waiting = Refusal("ClusterNotReady", f"waiting for broker {awaited} to join") if awaited else None
    assert plan.refusal == waiting
    assert bool(plan.steps) == (awaited is None)


def test_every_bad_config_is_named_at_once() -> None:
    (plan,) = plan_topics([topic(config={"retention.ms": "x", "nope": 1, "segment.bytes": 1})], ONE_BROKER)
    assert plan.refusal is not None
    assert all(name in plan.refusal.message for name in ("retention.ms=x", "nope", "segment.bytes=1"))


def test_the_oldest_of_several_resources_for_one_topic_manages_it() -> None:
    young = topic("a", created="2026-01-02T00:00:00Z", topic_name="flights", partitions=1)
    old = topic("b", created="2026-01-01T00:00:00Z", topic_name="flights", partitions=2)
    undated = topic("c", topic_name="flights")
    plans = plan_topics([young, old, undated], ONE_BROKER)
    assert plans[1].steps == (CreateTopic("flights", ((0,), (0,)), {}),)
    conflict = Refusal("ResourceConflict", "Topic flights is managed by the older resource b; delete the newer Topic")
    assert [plans[0].refusal, plans[2].refusal] == [conflict, conflict]


def test_the_first_of_equally_old_resources_for_one_topic_manages_it() -> None:
    plans = plan_topics([topic("a", topic_name="flights"), topic("b", topic_name="flights")], having())
    assert [plan.refusal is None for plan in plans] == [True, False]


def test_a_broker_to_be_removed_is_emptied_of_undeclared_topics_too() -> None:
    cluster = replace(having(partitions=3, replicas=2, brokers=3), leaving=frozenset({2}))
    assert plan_evacuation((), cluster, {}) == (MoveReplicas("flights", {1: (1, 0), 2: (1, 0)}),)
    declared = plan_topics([topic(replicas=1)], cluster)
    assert declared[0].steps == (MoveReplicas("flights", {0: (0,), 1: (1,), 2: (0,)}),)
    assert plan_evacuation(declared, cluster, {}) == ()


def test_a_topic_keeps_its_replicas_on_a_leaving_broker_that_it_needs() -> None:
    assert plan_evacuation((), having(replicas=3, brokers=3).with_brokers(2), {}) == ()


def test_a_topic_with_moving_replicas_is_not_ready_but_belongs_to_its_resource() -> None:
    found = TopicState("id", ((0,), (1, 0)), {}, moving={0: (0, 1)})
    status = topic_status(topic(replicas=2), found, None, "T")
    told = status.conditions[0]
    assert (told.status, told.reason) == ("False", "ReplicasMoving")
    assert told.message == "1 of 2 partitions are being reassigned"
    assert (status.topic_name, status.replicas) == ("flights", 2)


def test_replicas_count_as_moving_before_brokers_report_the_move() -> None:
    lagging = having(partitions=2, replicas=3, brokers=3).topics["flights"]
    assert topic_status(topic(replicas=2), lagging, None, "T").conditions[0].reason == "ReplicasMoving"
    assert topic_status(topic(), lagging, None, "T").conditions[0].reason == "Reconciled"


def test_a_status_keeps_its_transition_time_until_the_condition_changes() -> None:
    declared, found = topic(), having().topics["flights"]
    first = topic_status(declared, found, None, "T1")
    second = topic_status(struct_replace(declared, status=first), found, None, "T2")
    refused = topic_status(struct_replace(declared, status=second), found, Refusal("NotSupported", "no"), "T3")
    assert [status.conditions[0].last_transition_time for status in (first, second, refused)] == ["T1", "T1", "T3"]
    assert (refused.conditions[0].status, refused.conditions[0].reason) == ("False", "NotSupported")
    assert (first.topic_id, first.partitions, first.replicas, first.topic_name) == ("id", 6, 1, "flights")


def test_a_refused_resource_does_not_claim_the_topic() -> None:
    status = topic_status(topic(), having().topics["flights"], Refusal("ResourceConflict", "older"), "T")
    assert status.topic_name is None


def test_a_status_keeps_the_cluster_that_first_had_the_topic() -> None:
    found, refused = having().topics["flights"], Refusal("ResourceConflict", "older")
    assert topic_status(topic(), found, refused, "T", cluster="one").cluster is None
    first = topic_status(topic(), found, None, "T", cluster="one")
    again = topic_status(struct_replace(topic(), status=first), None, refused, "T", cluster="two")
    assert (first.cluster, again.cluster) == ("one", "one")
