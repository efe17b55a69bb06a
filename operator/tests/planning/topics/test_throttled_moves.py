"""Replicas that move are limited to the Cluster's rate, and no others are."""

from dataclasses import replace

from barnabas_operator.planning.cluster_state import ClusterState, DesiredState, TopicState
from barnabas_operator.planning.topics.reconcile_plan import plan_reconcile
from barnabas_operator.planning.topics.replica_moves import AlterConfigs, MoveReplicas, TopicStep
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import ConfigValue, Topic, TopicSpec

LEADERS, FOLLOWERS = (f"{who}.replication.throttled.replicas" for who in ("leader", "follower"))
RATE: dict[str, ConfigValue] = {"follower.replication.throttled.rate": 10_000_000}
LISTED = {LEADERS: "0:0,0:1,1:0,1:1", FOLLOWERS: "0:0,0:1,1:0,1:1"}
IDLE = ClusterState({0: None, 1: None}, {"t": TopicState("id", ((0,), (0,)), {})}).with_brokers(2)


def topic(config: dict[str, ConfigValue] | None = None, replicas: int = 2) -> Topic:
    return Topic(metadata=ObjectMeta(name="t"), spec=TopicSpec(replicas=replicas, config=config or {}))


def steps(found: ClusterState, *declared: Topic, rate: dict[str, ConfigValue] | None = None) -> tuple[TopicStep, ...]:
    spec = ClusterSpec(brokers=Brokers(replicas=2), config=RATE if rate is None else rate)
    return plan_reconcile(DesiredState(Cluster(metadata=ObjectMeta(name="one"), spec=spec), declared, ()), found).steps


def having(overrides: dict[str, str], *, moving: bool) -> ClusterState:
    rows = ((0, 1), (0, 1))
    there = TopicState("id", rows, overrides, moving=dict(enumerate(rows)) if moving else {})
    return replace(IDLE, topics={"t": there})


def test_replicas_are_listed_as_throttled_before_they_move() -> None:
    move = MoveReplicas("t", {0: (0, 1), 1: (0, 1)})
    assert steps(IDLE, topic()) == (AlterConfigs("t", LISTED), move)


def test_other_configs_of_the_topic_change_in_the_same_step() -> None:
    (configs, _) = steps(IDLE, topic({"retention.ms": 5}))
    assert configs == AlterConfigs("t", {"retention.ms": "5", **LISTED})


def test_replicas_stay_listed_as_throttled_only_while_they_move() -> None:
    assert steps(having(LISTED, moving=True), topic()) == ()
    assert steps(having(LISTED, moving=False), topic()) == (AlterConfigs("t", {LEADERS: None, FOLLOWERS: None}),)
    assert steps(having({}, moving=False), topic()) == ()


def test_replicas_of_undeclared_topics_are_listed_as_throttled_too() -> None:
    going = replace(IDLE, racks=dict.fromkeys(range(3)), topics={"t": TopicState("id", ((2,),), {})}).with_brokers(2)
    assert steps(going) == (AlterConfigs("t", {LEADERS: "0:0,0:2", FOLLOWERS: "0:0"}), MoveReplicas("t", {0: (0,)}))


def test_a_throttle_that_a_topic_declares_itself_stays() -> None:
    declared = topic({LEADERS: "*", FOLLOWERS: "*"})
    assert steps(having({LEADERS: "*", FOLLOWERS: "*"}, moving=True), declared) == ()


def test_lists_of_throttled_replicas_are_left_unchanged_without_a_declared_rate() -> None:
    assert steps(having(LISTED, moving=True), topic(), rate={}) == ()
    assert steps(having(LISTED, moving=False), topic(), rate={}) == ()
    assert [type(step) for step in steps(IDLE, topic(), rate={})] == [MoveReplicas]
