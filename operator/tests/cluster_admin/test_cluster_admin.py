"""The admin adapter: steps change the cluster, and a broker's refusal comes back with Kafka's code and message."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from barnabas_core.errors import ErrorCode
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka import cluster_admin
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.step_requests import TOPICS_A_REQUEST_MAX, requests_of, send
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    MoveReplicas,
    NewReplica,
    TopicStep,
)
from harness.deadline import wait_for
from harness.running_up import RunningUp


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    running = RunningUp(tmp_path_factory.mktemp("up"))
    running.start()
    yield running
    running.close()


@pytest.fixture
def admin(cluster: RunningUp) -> Iterator[ClusterAdmin]:
    with ClusterAdmin(cluster.bootstrap, SystemClock()) as connected:
        yield connected


def with_overrides(admin: ClusterAdmin, *names: str) -> ClusterState:
    return admin.with_overrides(admin.cluster_state(), names)


def deletion(admin: ClusterAdmin, topic: str) -> DeleteTopic:
    return DeleteTopic(topic, admin.cluster_state().topics[topic].topic_id)


def test_a_deletion_spares_a_topic_that_was_created_again_with_the_same_name(admin: ClusterAdmin) -> None:
    admin.apply([CreateTopic("again", ((0,),), {})])
    late = deletion(admin, "again")
    assert admin.apply([late]) == {}
    admin.apply([CreateTopic("again", ((0,), (0,)), {})])
    assert admin.apply([late]) == {}, "the topic with this id is gone"
    assert len(admin.cluster_state().topics["again"].partitions) == 2
    admin.apply([deletion(admin, "again")])
    assert "again" not in admin.cluster_state().topics


def test_each_step_shows_in_the_state_gathered_after_it(admin: ClusterAdmin) -> None:
    admin.apply([CreateTopic("grown", ((0,), (0,)), {"retention.ms": "1000", "cleanup.policy": "compact"})])
    first = with_overrides(admin, "grown").topics["grown"]
    assert (first.partitions, first.replication_factor) == (((0,), (0,)), 1)
    assert first.overrides == {"retention.ms": "1000", "cleanup.policy": "compact"}
    admin.apply([IncreasePartitions("grown", 3, ((0,),))])
    admin.apply([AlterConfigs("grown", {"retention.ms": None, "segment.ms": "60000"})])
    state = with_overrides(admin, "grown")
    assert len(state.topics["grown"].partitions) == 3
    assert state.topics["grown"].overrides == {"cleanup.policy": "compact", "segment.ms": "60000"}
    assert (state.racks, state.num_partitions, state.default_replication_factor) == ({0: None}, 1, 1)
    assert state.registered == {0}
    admin.apply([deletion(admin, "grown")])
    assert "grown" not in with_overrides(admin, "grown").topics


def test_the_admin_also_asks_a_broker_that_joined_after_the_client_read_the_metadata(admin: ClusterAdmin) -> None:
    known = admin.client.connections.cluster._brokers
    broker = known.pop(0)
    known[7] = type(broker)(7, broker.host, broker.port, broker.rack)
    assert admin.cluster_state().racks == {0: None}
    assert admin.broker_overrides([0]).keys() == {0}
    assert admin.stray_logs([0]) == ()


def test_brokers_create_new_replicas_in_the_preferred_log_dirs(admin: ClusterAdmin) -> None:
    before = admin.disks([0]).loads(0)
    second = before[1].path
    admin.prefer_log_dirs({NewReplica("placed", number, 0): second for number in range(4)})
    admin.apply([CreateTopic("placed", ((0,),) * 4, {})])
    after = admin.disks([0]).loads(0)
    assert [load.path for load in after] == [load.path for load in before]
    assert [then.partitions - load.partitions for load, then in zip(before, after, strict=True)] == [0, 4]
    assert after[1].empty_partitions - before[1].empty_partitions == 4
    assert min(load.free_bytes for load in after) > 0
    admin.apply([deletion(admin, "placed")])


def test_configs_are_gathered_only_for_the_requested_topics(admin: ClusterAdmin) -> None:
    admin.apply([CreateTopic("other", ((0,),), {"retention.ms": "1000"})])
    admin.apply([CreateTopic("third", ((0,),), {"retention.ms": "1000"})])
    topics = with_overrides(admin, "other", "nowhere").topics
    assert (topics["other"].overrides, topics["third"].overrides) == ({"retention.ms": "1000"}, {})


def test_the_admin_reads_topic_configs_again_when_they_are_old_or_changed(
    admin: ClusterAdmin, cluster: RunningUp
) -> None:
    admin.apply([CreateTopic("kept", ((0,),), {"retention.ms": "1000"})])
    with ClusterAdmin(cluster.bootstrap, SystemClock(), configs_kept_s=3600) as slow:

        def seen(by: ClusterAdmin) -> str:
            return with_overrides(by, "kept").topics["kept"].overrides["retention.ms"]

        assert (seen(slow), seen(admin)) == ("1000", "1000")
        admin.apply([AlterConfigs("kept", {"retention.ms": "2000"})])
        assert (seen(slow), seen(admin)) == ("1000", "2000")
        slow.apply([AlterConfigs("kept", {"segment.ms": "60000"})])
        assert seen(slow) == "2000"
        admin.apply([deletion(admin, "kept")])
        admin.apply([CreateTopic("kept", ((0,),), {"retention.ms": "3000"})])
        assert seen(slow) == "3000"


REFUSED: dict[str, tuple[TopicStep, ErrorCode]] = {
    "a topic that is there": (CreateTopic("there", ((0,),), {}), ErrorCode.TOPIC_ALREADY_EXISTS),
    "a broker that is not": (CreateTopic("x", ((7,),), {}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "a bad name": (CreateTopic("a b", ((0,),), {}), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a bad config at creation": (CreateTopic("x", ((0,),), {"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
    "fewer partitions": (IncreasePartitions("there", 1, ()), ErrorCode.INVALID_PARTITIONS),
    "partitions of no topic": (IncreasePartitions("nowhere", 2, ((0,),)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a bad config": (AlterConfigs("there", {"retention.ms": "x"}), ErrorCode.INVALID_CONFIG),
    "an unknown config": (AlterConfigs("there", {"nope": "x"}), ErrorCode.INVALID_CONFIG),
    "the config of no topic": (AlterConfigs("nowhere", {"retention.ms": "1"}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "a move to a broker that is not": (MoveReplicas("there", {0: (7,)}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "a move of a partition that is not": (MoveReplicas("there", {9: (0,)}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
}


@pytest.mark.parametrize(("step", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_a_refusal_carries_kafkas_code(admin: ClusterAdmin, step: TopicStep, code: ErrorCode) -> None:
    if "there" not in admin.cluster_state().topics:
        admin.apply([CreateTopic("there", ((0,), (0,)), {})])
    (refusal,) = admin.apply([step]).values()
    assert refusal.code == code
    assert str(refusal).startswith(f"{code.name} ({code.value})")


def test_a_refused_topic_does_not_hold_up_the_changes_of_many_others(admin: ClusterAdmin) -> None:
    names = [f"many-{number}" for number in range(TOPICS_A_REQUEST_MAX + 5)]
    good = [CreateTopic(name, ((0,),), {}) for name in names]
    bad = CreateTopic("many-bad", ((9,),), {})
    assert list(admin.apply([*good[:50], bad, *good[50:]])) == ["many-bad"]
    assert list(admin.apply([IncreasePartitions(name, 2, ((0,),)) for name in ["nowhere", *names]])) == ["nowhere"]
    state = admin.cluster_state()
    assert [len(state.topics[name].partitions) for name in names] == [2] * len(names)
    assert admin.apply([DeleteTopic(name, state.topics[name].topic_id) for name in names]) == {}
    assert state.topics.keys() - admin.cluster_state().topics.keys() == set(names)


def test_the_admin_does_not_wait_for_a_move_of_a_topic_that_is_deleted_meanwhile(
    admin: ClusterAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin.apply([CreateTopic("short-lived", ((0,),), {})])

    def delete_then(client: Any, steps: Sequence[TopicStep]) -> object:
        answers = send(client, steps)
        client.delete_topics(["short-lived"])
        wait_for(lambda: client.describe_topics(["short-lived"])[0]["error_code"] != ErrorCode.NONE)
        return answers

    monkeypatch.setattr(cluster_admin, "send", delete_then)
    assert admin.apply([MoveReplicas("short-lived", {0: (0,)})]) == {}


def test_the_admin_reads_moves_from_the_broker_to_which_it_sent_moves(admin: ClusterAdmin) -> None:
    connections = admin.client.connections
    assert connections.mover == 0, "the controller"
    admin.apply([MoveReplicas("none", {0: (0,)})])
    connections.cluster.controller = None
    assert connections.mover == 0


def test_a_request_holds_no_more_than_kafka_accepts() -> None:
    steps = [CreateTopic(str(number), ((0,),) * 6000, {}) for number in range(3)]
    assert [len(request) for request in requests_of(steps)] == [1, 1, 1]
    assert [len(request) for request in requests_of([DeleteTopic(str(number), "id") for number in range(250)])] == [
        100,
        100,
        50,
    ]


CONNECTS: dict[str, Callable[[], object]] = {
    "nobody listens": lambda: ClusterAdmin("127.0.0.1:1", SystemClock(), connect_timeout_s=0.5),
    "no such host": lambda: ClusterAdmin("nowhere.invalid:9092", SystemClock(), connect_timeout_s=0.5),
}


@pytest.mark.parametrize("connect", CONNECTS.values(), ids=CONNECTS.keys())
def test_connecting_to_an_unreachable_cluster_fails_and_leaves_no_thread(connect: Callable[[], object]) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ClusterUnreachable):
        connect()
    assert set(threading.enumerate()) <= before
