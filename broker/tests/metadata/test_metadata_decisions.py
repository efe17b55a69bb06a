"""What requests turn into, as tables: the cluster, the request, the documents or Kafka's error."""

import dataclasses
import random
from collections.abc import Sequence
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.metadata.decisions.alter_configs import (
    BrokerOverrides,
    ConfigChange,
    ConfigOperation,
    decide_alter_broker,
    decide_alter_topic,
    replace_all,
)
from barnabas_broker.metadata.decisions.cluster_view import ClusterView, view_cluster
from barnabas_broker.metadata.decisions.create_partitions import NewPartitions, decide_create_partitions
from barnabas_broker.metadata.decisions.create_topics import NewTopic, decide_create_topics
from barnabas_broker.metadata.decisions.update_features import FeatureUpdate, UpgradeType, decide_update_features
from barnabas_broker.metadata.features import ELR, FIRST_LEVELS, METADATA_LEVEL, unsupported
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState, TopicDocument
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ApiError, ErrorCode

SET, DELETE, APPEND, SUBTRACT = ConfigOperation
SEED = 42


def registration(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, UUID(int=broker_id), (), rack, fenced=fenced)


def a_topic(name: str, *replicas: Sequence[int], configs: dict[str, str] | None = None) -> TopicDocument:
    states = tuple(PartitionState(tuple(row), row[0], 0, tuple(row)) for row in replicas or ((0,),))
    return TopicDocument(name, UUID(int=1000 + len(name)), states, configs or {})


def a_cluster(brokers: int | Sequence[BrokerRegistration] = 3, *topics: TopicDocument, **settings: str) -> ClusterView:
    registrations = [registration(number) for number in range(brokers)] if isinstance(brokers, int) else brokers
    return view_cluster(
        {topic.name: topic for topic in topics},
        {each.broker_id: each for each in registrations},
        parse_broker_config({name.replace("_", "."): value for name, value in settings.items()}),
        {},
    )


def create(view: ClusterView, topic: NewTopic, seed: int = SEED) -> TopicDocument:
    outcome = decide_create_topics(view, [topic], random.Random(seed))[topic.name]
    if isinstance(outcome, ApiError):
        raise outcome
    return outcome


REFUSED_TOPICS = [
    (NewTopic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'a b' contains"),
    (NewTopic("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
    (NewTopic("o_ld"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'o_ld' collides with existing topic 'o.ld'"),
    (
        NewTopic("n", partitions=0),
        ErrorCode.INVALID_PARTITIONS,
        "Number of partitions was set to 0; must be at least 1",
    ),
    (NewTopic("n", partitions=-2), ErrorCode.INVALID_PARTITIONS, "was set to -2; must be at least 1, or -1"),
    (NewTopic("n", 10_001), ErrorCode.POLICY_VIOLATION, "partitions per request: 10001; 10000 at most."),
    (NewTopic("n", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "partitions per request: 2147483647; 10000 at most."),
    (NewTopic("n", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor was set to 0; must be at least 1"),
    (NewTopic("n", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "was set to -2; must be at least 1, or -1"),
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
    (NewTopic("n", configs={"nope": "x"}), ErrorCode.INVALID_CONFIG, "nope=x: is no setting of a topic"),
    (NewTopic("n", configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG, "Null value not supported"),
]


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED_TOPICS)
def test_a_topic_that_cannot_be_is_refused_as_in_kafka(asked: NewTopic, code: ErrorCode, message: str) -> None:
    view = a_cluster(3, a_topic("old"), a_topic("o.ld"))
    with pytest.raises(ApiError) as refused:
        create(view, asked)
    assert refused.value.code is code
    assert message in str(refused.value)


def test_what_is_not_said_is_the_brokers_default() -> None:
    topic = create(a_cluster(3, num_partitions="4", default_replication_factor="2"), NewTopic("a"))
    assert [len(state.replicas) for state in topic.partitions] == [2, 2, 2, 2]


def test_a_new_partition_is_led_by_its_first_replica() -> None:
    for state in create(a_cluster(3), NewTopic("a", 6, 3)).partitions:
        assert state == PartitionState(state.replicas, state.replicas[0], 0, state.replicas)


def test_replicas_that_are_asked_for_are_taken_as_they_are() -> None:
    topic = create(a_cluster(3), NewTopic("a", assignments=[(1, [2, 0]), (0, [1, 2])]))
    assert [state.replicas for state in topic.partitions] == [(1, 2), (2, 0)]


def test_a_fenced_broker_leads_nothing_and_is_in_no_isr() -> None:
    brokers = [registration(0), registration(1, fenced=True), registration(2)]
    topic = create(a_cluster(brokers), NewTopic("a", assignments=[(0, [1, 2, 0])]))
    assert topic.partitions == (PartitionState((1, 2, 0), 2, 0, (2, 0)),)
    with pytest.raises(ApiError, match="of which none is alive"):
        create(a_cluster(brokers), NewTopic("a", assignments=[(0, [1])]))


def test_placement_uses_fenced_brokers_only_where_it_must() -> None:
    brokers = [registration(0), registration(1, fenced=True), registration(2)]
    two = create(a_cluster(brokers), NewTopic("a", 10, 2))
    assert {broker for state in two.partitions for broker in state.replicas} == {0, 2}
    three = create(a_cluster(brokers), NewTopic("a", 10, 3))
    assert {state.isr for state in three.partitions} <= {(0, 2), (2, 0)}
    with pytest.raises(ApiError, match="of which 0 are alive"):
        create(a_cluster([registration(0, fenced=True)]), NewTopic("a"))


def test_every_new_partition_has_a_replica_that_is_alive_and_stays() -> None:
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


def test_topics_of_one_request_may_not_collide_either() -> None:
    outcomes = decide_create_topics(a_cluster(), [NewTopic("a.b"), NewTopic("a_b")], random.Random(SEED))
    assert isinstance(outcomes["a.b"], TopicDocument)
    refused = outcomes["a_b"]
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_topics_of_one_request_have_ten_thousand_partitions_at_most() -> None:
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
    (NewPartitions("a", 10_004), ErrorCode.POLICY_VIOLATION, "partitions per request: 10001; 10000 at most."),
    (NewPartitions("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "number of partitions per request"),
    (NewPartitions("b", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'b' does not exist."),
    (NewPartitions("a", 5, [[0, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "add 2 additional partition(s), but 1 "),
    (NewPartitions("a", 4, [[0]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "which have 2 replica(s)"),
    (NewPartitions("a", 4, [[0, 9]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 9"),
]


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED_PARTITIONS)
def test_partitions_that_cannot_be_are_refused(asked: NewPartitions, code: ErrorCode, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        decide_create_partitions(a_cluster(3, a_topic("a", (0, 1), (1, 2), (2, 0))), asked)
    assert refused.value.code is code
    assert message in str(refused.value)


def test_added_partitions_go_on_where_the_first_ones_began() -> None:
    topic = a_topic("a", (1, 2), (2, 0), (0, 1))
    grown = decide_create_partitions(a_cluster(3, topic), NewPartitions("a", 6))
    assert grown.partitions[:3] == topic.partitions
    assert [state.replicas[0] for state in grown.partitions[3:]] == [1, 2, 0]
    placed = decide_create_partitions(a_cluster(3, topic), NewPartitions("a", 4, [[2, 1]]))
    assert placed.partitions[3].replicas == (2, 1)


CONFIG_CHANGES = [
    ([ConfigChange("retention.ms", SET, "7")], {"cleanup.policy": "compact", "retention.ms": "7"}),
    ([ConfigChange("cleanup.policy", DELETE, None)], {}),
    ([ConfigChange("not.there", DELETE, None)], {"cleanup.policy": "compact"}),
    ([ConfigChange("cleanup.policy", APPEND, "delete")], {"cleanup.policy": "compact,delete"}),
    ([ConfigChange("cleanup.policy", APPEND, "compact")], {"cleanup.policy": "compact"}),
    ([ConfigChange("cleanup.policy", SUBTRACT, "compact")], {"cleanup.policy": ""}),
    ([ConfigChange("cleanup.policy", SUBTRACT, "delete")], {"cleanup.policy": "compact"}),
    (
        [ConfigChange("leader.replication.throttled.replicas", APPEND, "0:1")],
        {"cleanup.policy": "compact", "leader.replication.throttled.replicas": "0:1"},
    ),
]


@pytest.mark.parametrize(("changes", "expected"), CONFIG_CHANGES)
def test_configs_of_a_topic_change(changes: list[ConfigChange], expected: dict[str, str]) -> None:
    topic = a_topic("a", configs={"cleanup.policy": "compact"})
    assert decide_alter_topic(a_cluster(1, topic), "a", changes) == msgspec.structs.replace(topic, configs=expected)


REFUSED_CHANGES = [
    ([ConfigChange("retention.ms", SET, "x")], ErrorCode.INVALID_CONFIG, "retention.ms=x: must be an integer"),
    ([ConfigChange("nope", SET, "x")], ErrorCode.INVALID_CONFIG, "Unknown config name: nope"),
    (
        [ConfigChange("retention.ms", SET, None)],
        ErrorCode.INVALID_REQUEST,
        "Null value not supported for: retention.ms",
    ),
    ([ConfigChange("retention.ms", APPEND, "1")], ErrorCode.INVALID_CONFIG, "Can't APPEND to key retention.ms because"),
    ([ConfigChange("flush.ms", SET, "1")] * 2, ErrorCode.INVALID_REQUEST, "duplicate config keys: flush.ms"),
    (
        [ConfigChange("min.compaction.lag.ms", SET, "9"), ConfigChange("max.compaction.lag.ms", SET, "8")],
        ErrorCode.INVALID_CONFIG,
        "must be at most max.compaction.lag.ms=8",
    ),
]


@pytest.mark.parametrize(("changes", "code", "message"), REFUSED_CHANGES)
def test_changes_that_cannot_be_are_refused(changes: list[ConfigChange], code: ErrorCode, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        decide_alter_topic(a_cluster(1, a_topic("a")), "a", changes)
    assert refused.value.code is code
    assert message in str(refused.value)


def test_a_topic_that_is_not_there_has_no_configs() -> None:
    with pytest.raises(ApiError) as refused:
        decide_alter_topic(a_cluster(1), "a", [])
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_replacing_removes_what_is_not_named() -> None:
    changes = replace_all({"segment.ms": "5"}, {"retention.ms": "7", "segment.ms": "4"})
    assert changes == [ConfigChange("retention.ms", DELETE, None), ConfigChange("segment.ms", SET, "5")]


NOTHING = BrokerOverrides({}, {})
REFUSED_BROKER_CHANGES = [
    ("0", "num.partitions", "3", ErrorCode.INVALID_REQUEST, "Cannot update num.partitions dynamically"),
    ("0", "min.insync.replicas", "2", ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered"),
    ("0", "nope", "3", ErrorCode.INVALID_CONFIG, "Unknown config name: nope"),
    ("0", "message.max.bytes", "-3", ErrorCode.INVALID_CONFIG, "message.max.bytes=-3: must be an integer, at least 0"),
    ("7", "message.max.bytes", "3", ErrorCode.INVALID_REQUEST, "No broker has the id '7'; there are [0]."),
    ("x", "message.max.bytes", "3", ErrorCode.INVALID_REQUEST, "No broker has the id 'x'; there are [0]."),
]


@pytest.mark.parametrize(("broker", "name", "value", "code", "message"), REFUSED_BROKER_CHANGES)
def test_broker_changes_that_cannot_be_are_refused(
    broker: str, name: str, value: str, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        decide_alter_broker(a_cluster(1), broker, [ConfigChange(name, SET, value)], NOTHING)
    assert refused.value.code is code
    assert message in str(refused.value)


def test_a_brokers_configs_must_fit_together_with_those_of_all() -> None:
    of_all = BrokerOverrides({}, {"log.cleaner.max.compaction.lag.ms": "5"})
    change = ConfigChange("log.cleaner.min.compaction.lag.ms", SET, "9")
    with pytest.raises(ApiError, match=r"must be at most log\.cleaner\.max\.compaction\.lag\.ms=5"):
        decide_alter_broker(a_cluster(1), "0", [change], of_all)
    assert decide_alter_broker(a_cluster(1), "0", [change], NOTHING) == {change.name: "9"}
    assert decide_alter_broker(a_cluster(1), "", [change], NOTHING) == {change.name: "9"}


LAGGING = {"min.compaction.lag.ms": "60000"}
MAX_LAG = "log.cleaner.max.compaction.lag.ms"


@pytest.mark.parametrize("broker", ["0", ""])
def test_a_brokers_config_that_contradicts_a_topics_own_is_refused(broker: str) -> None:
    view = a_cluster(1, a_topic("flights", configs=LAGGING))
    with pytest.raises(ApiError) as refused:
        decide_alter_broker(view, broker, [ConfigChange(MAX_LAG, SET, "1000")], NOTHING)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert "topic flights: min.compaction.lag.ms=60000: must be at most max.compaction.lag.ms=1000" in str(
        refused.value
    )


def test_a_config_of_all_brokers_is_held_against_the_topics_on_brokers_with_their_own() -> None:
    view = dataclasses.replace(
        a_cluster(2, a_topic("flights", configs=LAGGING)), overrides={"1": {"log.cleaner.min.compaction.lag.ms": "5"}}
    )
    decide_alter_broker(view, "", [ConfigChange(MAX_LAG, SET, "70000")], NOTHING)
    with pytest.raises(ApiError, match="topic flights"):
        decide_alter_broker(view, "", [ConfigChange(MAX_LAG, SET, "1000")], NOTHING)


def test_a_topics_config_is_held_against_every_broker_that_has_its_own() -> None:
    view = dataclasses.replace(a_cluster(2, a_topic("flights")), overrides={"1": {MAX_LAG: "1000"}})
    change = [ConfigChange("min.compaction.lag.ms", SET, "60000")]
    with pytest.raises(ApiError, match=r"must be at most max\.compaction\.lag\.ms=1000"):
        decide_alter_topic(view, "flights", change)
    with pytest.raises(ApiError, match=r"must be at most max\.compaction\.lag\.ms=1000"):
        create(view, NewTopic("trains", configs=LAGGING))


def test_what_is_stored_and_wrong_is_in_the_way_of_no_other_change() -> None:
    view = a_cluster(1, a_topic("flights", configs={"of.a.newer.version": "1"}))
    changed = decide_alter_topic(view, "flights", [ConfigChange("retention.ms", SET, "5")])
    assert changed.configs == {"of.a.newer.version": "1", "retention.ms": "5"}
    of_all = BrokerOverrides({}, {"message.max.bytes": "many"})
    assert decide_alter_broker(view, "0", [ConfigChange("log.retention.ms", SET, "5")], of_all) == {
        "log.retention.ms": "5"
    }
    assert decide_alter_broker(view, "", [ConfigChange("message.max.bytes", DELETE, None)], of_all) == {}


def test_min_insync_replicas_is_set_for_all_brokers_and_not_removed() -> None:
    assert decide_alter_broker(a_cluster(1), "", [ConfigChange("min.insync.replicas", SET, "2")], NOTHING) == {
        "min.insync.replicas": "2"
    }
    of_all = BrokerOverrides({"min.insync.replicas": "3"}, {"min.insync.replicas": "2"})
    with pytest.raises(ApiError, match=r"Cluster-level min\.insync\.replicas cannot be removed while ELR is enabled"):
        decide_alter_broker(a_cluster(1), "", [ConfigChange("min.insync.replicas", DELETE, None)], of_all)
    assert decide_alter_broker(a_cluster(1), "0", [ConfigChange("min.insync.replicas", DELETE, None)], of_all) == {}


@pytest.mark.parametrize(
    "name",
    [
        "sasl.kerberos.min.time.before.relogin",
        "background.threads",
        "num.io.threads",
        "sasl.login.refresh.buffer.seconds",
    ],
)
@pytest.mark.parametrize("broker", ["0", ""])
def test_settings_without_effect_are_taken_while_the_broker_runs_as_in_its_file(broker: str, name: str) -> None:
    configs = decide_alter_broker(a_cluster(1), broker, [ConfigChange(name, SET, "3")], NOTHING)
    assert configs == {name: "3"}
    current = BrokerOverrides(configs, configs)
    assert decide_alter_broker(a_cluster(1), broker, [ConfigChange(name, DELETE, None)], current) == {}
    with pytest.raises(ApiError, match="its type is not LIST"):
        decide_alter_broker(a_cluster(1), broker, [ConfigChange(name, APPEND, "3")], NOTHING)


LATER = {METADATA_LEVEL: (1, 2), ELR: (1, 1)}


def with_features(broker_id: int, features: dict[str, tuple[int, int]]) -> BrokerRegistration:
    return msgspec.structs.replace(registration(broker_id), features=features)


def test_a_level_is_raised_when_every_registered_broker_supports_it() -> None:
    update = FeatureUpdate(METADATA_LEVEL, 2, UpgradeType.UPGRADE)
    everybody = [with_features(0, LATER), with_features(1, LATER)]
    assert decide_update_features(FIRST_LEVELS, [update], everybody, []) == {METADATA_LEVEL: 2, ELR: 1}
    older = [with_features(0, LATER), registration(1)]  # It registered before there were levels.
    with pytest.raises(ApiError, match="broker 1 supports 1 to 1") as refused:
        decide_update_features(FIRST_LEVELS, [update], older, [])
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_a_downgrade_has_to_be_asked_for() -> None:
    levels = {METADATA_LEVEL: 2, ELR: 1}
    with pytest.raises(ApiError, match="a downgrade has to be asked for"):
        decide_update_features(levels, [FeatureUpdate(METADATA_LEVEL, 1, UpgradeType.UPGRADE)], [], [])
    update = FeatureUpdate(METADATA_LEVEL, 1, UpgradeType.SAFE_DOWNGRADE)
    assert decide_update_features(levels, [update], [], []) == FIRST_LEVELS


@pytest.mark.parametrize(
    ("name", "level", "why"),
    [
        ("nope", 1, "there are barnabas.metadata.version, eligible.leader.replicas.version"),
        (ELR, 0, "this broker supports 1 to 1"),
        (METADATA_LEVEL, 99, "this broker supports 1 to 2"),
    ],
)
def test_levels_that_cannot_be_are_refused(name: str, level: int, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        decide_update_features(FIRST_LEVELS, [FeatureUpdate(name, level, UpgradeType.UNSAFE_DOWNGRADE)], [], [])
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION


def test_a_version_says_of_which_clusters_it_cannot_be_part() -> None:
    assert unsupported(FIRST_LEVELS) is None
    assert unsupported({METADATA_LEVEL: 3}) == (
        "feature barnabas.metadata.version is finalized at level 3; this version supports 1 to 2"
    )
    assert unsupported({"of.later": 1}) == (
        "feature of.later is finalized at level 1, and this version does not know it"
    )
