"""Internal topics have as many replicas as the Cluster has brokers for, and the Cluster reports their moves."""

import pytest

from barnabas_operator.planning.cluster_state import ClusterState, TopicState
from barnabas_operator.planning.status.cluster_status import reassignment_conditions
from barnabas_operator.planning.topics.reconcile_plan import internal_configs, internal_factors, plan_evacuation
from barnabas_operator.planning.topics.replica_moves import AlterConfigs, MoveReplicas
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.topic import ConfigValue

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
STATES = "__share_group_state"


def cluster(brokers: int, config: dict[str, ConfigValue] | None = None) -> Cluster:
    return Cluster(
        metadata=ObjectMeta(name="one"), spec=ClusterSpec(brokers=Brokers(replicas=brokers), config=config or {})
    )


def state(alive: int, *rows: tuple[int, ...], topic: str = OFFSETS) -> ClusterState:
    return ClusterState(racks=dict.fromkeys(range(alive)), topics={topic: TopicState("id", rows, {})})


@pytest.mark.parametrize(
    ("brokers", "config", "factor"),
    [(1, {}, 1), (2, {}, 2), (9, {}, 3), (9, {"offsets.topic.replication.factor": 5}, 5)],
)
def test_the_replicas_of_internal_topics_follow_the_config_or_the_number_of_brokers(
    brokers: int, config: dict[str, ConfigValue], factor: int
) -> None:
    assert internal_factors(cluster(brokers, config))[OFFSETS] == factor


def moves(declared: Cluster, found: ClusterState) -> tuple[MoveReplicas, ...]:
    return plan_evacuation((), found.with_brokers(declared.spec.brokers.replicas), internal_factors(declared))


def test_internal_topics_get_more_replicas_when_brokers_are_added() -> None:
    assert moves(cluster(3), state(3, (0,), (0,))) == (MoveReplicas(OFFSETS, {0: (0, 1, 2), 1: (0, 1, 2)}),)


def test_internal_topics_wait_for_declared_brokers_that_are_not_alive() -> None:
    assert moves(cluster(3), state(2, (0,))) == ()


def test_internal_topics_get_fewer_replicas_before_brokers_are_removed() -> None:
    assert moves(cluster(2), state(3, (0, 1, 2), (2, 0, 1))) == (MoveReplicas(OFFSETS, {0: (0, 1), 1: (0, 1)}),)


def test_other_topics_keep_their_number_of_replicas() -> None:
    assert moves(cluster(3), state(3, (0,), topic="flights")) == ()
    assert moves(cluster(2), state(3, (0, 1, 2), topic="flights")) == ()


def test_internal_topics_with_the_right_number_of_replicas_do_not_move() -> None:
    assert moves(cluster(3), state(3, (0, 1, 2), (2, 1, 0))) == ()


def test_a_condition_reports_the_topics_whose_partitions_are_reassigned() -> None:
    found = TopicState("id", ((0, 1, 2), (0,)), {}, moving={0: (0, 1, 2)})
    (told,) = reassignment_conditions(cluster(3), "T", ClusterState({0: None}, {OFFSETS: found}), None)
    assert (told.type, told.status) == ("ReplicasMoving", "True")
    assert told.message == "partitions of these topics are being reassigned: __consumer_offsets (1)"
    assert list(reassignment_conditions(cluster(3), "T", state(3, (0, 1, 2)), None)) == []


@pytest.mark.parametrize(
    ("brokers", "replicas", "config", "min_isr"),
    [
        (1, 1, {}, "1"),
        (2, 2, {}, "1"),
        (3, 2, {}, "1"),  # The replicas are added first, and then count.
        (2, 3, {}, "1"),
        (3, 3, {}, "2"),
        (2, 2, {"transaction.state.log.min.isr": 2, "share.coordinator.state.topic.min.isr": 2}, "2"),
    ],
)
@pytest.mark.parametrize("topic", [TRANSACTIONS, STATES])
def test_min_isr_of_a_coordinators_topic_allows_for_one_missing_replica(
    topic: str, brokers: int, replicas: int, config: dict[str, ConfigValue], min_isr: str
) -> None:
    found = state(brokers, tuple(range(replicas)), topic=topic)
    (step,) = internal_configs(cluster(brokers, config), found)
    assert step == AlterConfigs(topic, {"min.insync.replicas": min_isr})
    there = found.with_overrides({topic: {"min.insync.replicas": min_isr}})
    assert list(internal_configs(cluster(brokers, config), there)) == []
