"""Decisions about requests, as tables: the cluster, the request, and the documents or Kafka's error."""

import random
from typing import Any

import msgspec
import pytest
from decision_samples import SEED, a_cluster, a_topic, create, registration
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.metadata.controller.decisions.alter_configs import NewPartitions, decide_create_partitions
from barnabas_broker.metadata.controller.decisions.create_topics import NewTopic, decide_create_topics
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.errors import ApiError, ErrorCode

REFUSED_TOPICS = [
    (NewTopic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is"),
    (NewTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a b' contains"),
    (NewTopic("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
    (NewTopic("o_ld"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'o_ld' collides with existing topic 'o.ld'"),
    (
        NewTopic("n", partitions=0),
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to 0; it must be at least 1",
    ),
    (NewTopic("n", partitions=-2), ErrorCode.INVALID_PARTITIONS, "was set to -2; it must be at least 1, or -1"),
    (NewTopic("n", 10_001), ErrorCode.POLICY_VIOLATION, "partitions per request: 10001; at most 10000."),
    (NewTopic("n", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "partitions per request: 2147483647; at most 10000."),
    (
        NewTopic("n", 1, 0),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "Replication factor was set to 0; it must be at least 1",
    ),
    (NewTopic("n", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "was set to -2; it must be at least 1, or -1"),
    (
        NewTopic("n", 1, 4),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "replicate the partition 4 time(s): the replication factor must be at most 3",
    ),
    (NewTopic("n", 1, -1, [(0, [0])]), ErrorCode.INVALID_REQUEST, "but number of partitions was not set to -1"),
    (NewTopic("n", -1, 1, [(0, [0])]), ErrorCode.INVALID_REQUEST, "but replication factor was not set to -1"),
    (NewTopic("n", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes an empty replica list"),
    (
        NewTopic("n", assignments=[(0, [9])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "includes broker 9, but no such broker",
    ),
    (
        NewTopic("n", assignments=[(0, [1, 1])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "includes a broker more than once",
    ),
    (
        NewTopic("n", assignments=[(0, [0]), (0, [1])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "multiple manual partition assignments for partition 0",
    ),
    (
        NewTopic("n", assignments=[(0, [0]), (2, [1])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "consecutive 0-based integer sequence",
    ),
    (
        NewTopic("n", assignments=[(0, [0, 1]), (1, [1])]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "a partition with 1 replica(s), but this is not consistent",
    ),
    (NewTopic("n", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG, "retention.ms=x: must be an integer"),
    (NewTopic("n", configs={"nope": "x"}), ErrorCode.INVALID_CONFIG, "nope=x: is not a setting of a topic"),
    (NewTopic("n", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "Null value not supported"),
]


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED_TOPICS)
def test_an_invalid_topic_is_refused_as_in_kafka(asked: NewTopic, code: ErrorCode, message: str) -> None:
    view = a_cluster(3, a_topic("old"), a_topic("o.ld"))
    with pytest.raises(ApiError) as refused:
        create(view, asked)
    assert refused.value.code is code
    assert message in str(refused.value)


class CountedName(str):
    """A name that counts the comparisons of names as metrics contain them."""

    compared = 0

    def replace(self, *arguments: Any) -> str:
        CountedName.compared += 1
        return super().replace(*arguments)


def test_each_existing_topic_is_checked_once_for_all_new_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise 10,000 topics and 100 new ones would need a million checks, 0.2 s in one turn of the loop."""
    monkeypatch.setattr(CountedName, "compared", 0)
    there = [a_topic(CountedName(f"team.old.{number}")) for number in range(50)]
    asked = [NewTopic(f"team.new.{number}", 1, 1) for number in range(50)]
    outcomes = decide_create_topics(a_cluster(3, *there), asked, random.Random(SEED))
    assert all(isinstance(each, TopicDocument) for each in outcomes.values())
    assert CountedName.compared == len(there)


def test_a_new_topic_gets_the_defaults_of_the_broker() -> None:
    topic = create(a_cluster(3, num_partitions="4", default_replication_factor="2"), NewTopic("a"))
    assert [len(state.replicas) for state in topic.partitions] == [2, 2, 2, 2]


def test_a_new_partition_is_led_by_its_first_replica() -> None:
    for state in create(a_cluster(3), NewTopic("a", 6, 3)).partitions:
        assert state == PartitionState(state.replicas, state.replicas[0], 0, state.replicas)


def test_a_requested_replica_assignment_is_used_unchanged() -> None:
    topic = create(a_cluster(3), NewTopic("a", assignments=[(1, [2, 0]), (0, [1, 2])]))
    assert [state.replicas for state in topic.partitions] == [(1, 2), (2, 0)]


def test_a_fenced_broker_is_neither_leader_nor_in_sync_in_a_new_topic() -> None:
    brokers = [registration(0), registration(1, fenced=True), registration(2)]
    topic = create(a_cluster(brokers), NewTopic("a", assignments=[(0, [1, 2, 0])]))
    assert topic.partitions == (PartitionState((1, 2, 0), 2, 0, (2, 0)),)
    with pytest.raises(ApiError, match="must be alive"):
        create(a_cluster(brokers), NewTopic("a", assignments=[(0, [1])]))


def test_placement_uses_fenced_brokers_only_if_necessary() -> None:
    brokers = [registration(0), registration(1, fenced=True), registration(2)]
    two = create(a_cluster(brokers), NewTopic("a", 10, 2))
    assert {broker for state in two.partitions for broker in state.replicas} == {0, 2}
    three = create(a_cluster(brokers), NewTopic("a", 10, 3))
    assert {state.isr for state in three.partitions} <= {(0, 2), (2, 0)}
    with pytest.raises(ApiError, match="0 of them are alive"):
        create(a_cluster([registration(0, fenced=True)]), NewTopic("a"))


def test_every_new_partition_has_a_live_replica_that_is_not_shutting_down() -> None:
    fenced = [registration(number, fenced=True) for number in range(1, 5)]
    stopping = msgspec.structs.replace(registration(5), is_shutting_down=True)
    view = a_cluster([registration(0), *fenced, stopping], a_topic("old", (1, 2)))
    created = create(view, NewTopic("a", 20, 2)).partitions
    added = decide_create_partitions(view, NewPartitions("old", 20)).partitions[1:]
    for state in (*created, *added):
        assert (state.leader, state.isr, len(set(state.replicas))) == (0, (0,), 2)


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_the_same_seed_gives_the_same_topic(seed: int, partitions: int) -> None:
    racks = [registration(number, f"rack-{number % 2}") for number in range(4)]
    asked = NewTopic("a", partitions, 2)
    topic = create(a_cluster(racks), asked, seed)
    assert topic == create(a_cluster(racks), asked, seed)
    for state in topic.partitions:
        assert {broker % 2 for broker in state.replicas} == {0, 1}


def test_colliding_topics_in_one_request_are_refused() -> None:
    outcomes = decide_create_topics(a_cluster(), [NewTopic("a.b"), NewTopic("a_b")], random.Random(SEED))
    assert isinstance(outcomes["a.b"], TopicDocument)
    refused = outcomes["a_b"]
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_topics_of_one_request_have_at_most_ten_thousand_partitions() -> None:
    wanted = [NewTopic("a", 6_000), NewTopic("b", 6_000), NewTopic("c", 4_000)]
    outcomes = decide_create_topics(a_cluster(), wanted, random.Random(SEED))
    assert [isinstance(outcomes[name], TopicDocument) for name in ("a", "b", "c")] == [True, False, True]


REFUSED_PARTITIONS = [
    (
        NewPartitions("a", 3),
        ErrorCode.INVALID_PARTITIONS,
        "Topic a already has 3 partition(s); the count must be larger.",
    ),
    (NewPartitions("a", 2), ErrorCode.INVALID_PARTITIONS, "The topic a currently has 3 partition(s); 2 would not be"),
    (NewPartitions("a", -1), ErrorCode.INVALID_PARTITIONS, "The topic a currently has 3 partition(s); -1 would not be"),
    (NewPartitions("a", 10_004), ErrorCode.POLICY_VIOLATION, "partitions per request: 10001; at most 10000."),
    (NewPartitions("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "number of partitions per request"),
    (NewPartitions("b", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'b' does not exist."),
    (NewPartitions("a", 5, [[0, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add 2 additional partition(s), but 1 "),
    (NewPartitions("a", 4, [[0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "which have 2 replica(s)"),
    (NewPartitions("a", 4, [[0, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 9"),
]


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED_PARTITIONS)
def test_an_invalid_number_or_assignment_of_new_partitions_is_refused(
    asked: NewPartitions, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        decide_create_partitions(a_cluster(3, a_topic("a", (0, 1), (1, 2), (2, 0))), asked)
    assert refused.value.code is code
    assert message in str(refused.value)


def test_placement_of_added_partitions_starts_at_the_first_leader_or_is_as_requested() -> None:
    topic = a_topic("a", (1, 2), (2, 0), (0, 1))
    grown = decide_create_partitions(a_cluster(3, topic), NewPartitions("a", 6))
    assert grown.partitions[:3] == topic.partitions
    assert [state.replicas[0] for state in grown.partitions[3:]] == [1, 2, 0]
    placed = decide_create_partitions(a_cluster(3, topic), NewPartitions("a", 4, [[2, 1]]))
    assert placed.partitions[3].replicas == (2, 1)
