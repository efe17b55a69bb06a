"""`barnabas up` with several brokers: started together, watched one by one, restarted in turn, added and removed."""

import os
import signal
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import DescribeClusterRequest

from barnabas_operator.resources.object_meta import condition_of
from harness.ask import ask
from harness.deadline import wait_for
from harness.running_up import RunningUp, alive, cluster_manifest, topic_manifest
from harness.stock_client import StockClient

Run = Callable[..., subprocess.CompletedProcess[str]]

# A broker that was killed may come back once its lease has run out.
QUICK = {"broker_heartbeat_interval_ms": 200, "broker_session_timeout_ms": 1500}
OF_ANOTHER_BROKER = "version=1\ncluster.id=another\nnode.id=77\ndirectory.id=AAAAAAAAAAAAAAAAAAAACQ\n"
THREE = cluster_manifest(3, **QUICK)


def leaders(up: RunningUp, topic: str) -> dict[int, int]:
    """By partition, as a client sees them."""
    topics = AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(timeout=10).topics
    return {number: part.leader for number, part in topics[topic].partitions.items()} if topic in topics else {}


def replicas_in_sync(up: RunningUp, topic: str) -> dict[int, set[int]]:
    """By partition, as a client sees them; all replicas are in sync."""
    found = AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(topic, timeout=10).topics[topic].partitions
    assert all(set(part.isrs) == set(part.replicas) for part in found.values())
    return {number: set(part.isrs) for number, part in found.items()}


def settled_replicas(up: RunningUp, topic: str) -> dict[int, set[int]]:
    """By partition; nothing of one that has replicas out of sync."""
    found = AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(topic, timeout=10).topics[topic].partitions
    return {number: set(part.replicas) for number, part in found.items() if set(part.isrs) == set(part.replicas)}


def send_to_each_partition(up: RunningUp, topic: str, partitions: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": up.bootstrap, "message.timeout.ms": 20_000})
    for number in range(partitions):
        producer.produce(topic, b"x", partition=number, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(30) == 0
    assert set(failures) == {None}


def test_three_brokers_share_the_partitions_and_nothing_is_left_running(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("flights", "partitions: 6", "replicas: 1"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    assert sorted(leaders(up, "flights").values()) == [0, 0, 1, 1, 2, 2]
    send_to_each_partition(up, "flights", 6)
    status = up.cluster_status()
    assert (status.ready_brokers, status.under_replicated_partitions, status.offline_partitions) == (3, 0, 0)
    assert status.controller in (0, 1, 2)
    assert len(up.bootstrap.split(",")) == len(set(up.bootstrap.split(","))) == 3
    pids = [up.broker_pid(number) for number in range(3)]
    assert up.stop() == 0
    assert not any(map(alive, pids))


def test_more_replicas_than_brokers_are_refused(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("flights", "replicas: 4"))
    up.start()
    wait_for(lambda: up.reason("flights") == "NotEnoughBrokers")
    assert up.message("flights") == "spec.replicas is 4; allowed: 1 to 3, the number of brokers"


def test_one_that_dies_is_started_again_and_the_others_stay(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.start()
    before = [up.broker_pid(number) for number in range(3)]
    os.kill(before[1], signal.SIGKILL)
    wait_for(lambda: up.cluster_reason() == "BrokersNotReady")
    wait_for(lambda: "broker 1 is ready again" in up.log() and up.cluster_reason() == "BrokersReady")
    assert [up.broker_pid(number) == pid for number, pid in enumerate(before)] == [True, False, True]


def test_a_changed_setting_restarts_all_brokers_one_by_one_the_controller_last(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("flights", "partitions: 6"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    controller = up.cluster_status().controller
    before = [up.broker_pid(number) for number in range(3)]
    up.write("cluster.yaml", THREE + "    num.partitions: 4\n")
    wait_for(lambda: up.cluster_status().observed_generation == 2 and up.cluster_reason() == "BrokersReady")
    lines = [line.split() for line in up.log().splitlines() if "restarts" in line or "is ready after" in line][-6:]
    order = [int(line[2]) for line in lines[::2]]
    assert [line[3] for line in lines] == ["restarts:", "is"] * 3  # Each was ready before the next one went.
    assert [int(line[2]) for line in lines[1::2]] == order
    assert order == [*(number for number in range(3) if number != controller), controller]
    assert not {up.broker_pid(number) for number in range(3)} & set(before)
    send_to_each_partition(up, "flights", 6)


def test_settings_that_no_broker_starts_with_are_taken_back(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.start()
    for number in range(3):
        strange = up.data / f"broker-{number}" / "volume-9" / "meta.properties"
        strange.parent.mkdir()
        strange.write_text(OF_ANOTHER_BROKER, encoding="utf-8")
    up.write("cluster.yaml", THREE.replace("      - id: 1\n", "      - id: 1\n      - id: 9\n"))
    wait_for(lambda: up.cluster_reason() == "BrokerFailed")
    wait_for(lambda: up.cluster_status().ready_brokers == 3)
    assert up.log().count("restarts: its settings changed") == 1
    up.write("cluster.yaml", THREE)
    wait_for(lambda: up.cluster_reason() == "BrokersReady")


def test_replicas_are_copied_to_more_brokers_and_taken_from_some_while_records_stay(up: RunningUp) -> None:
    flights = topic_manifest("flights", "partitions: 4", "replicas: 1")
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", flights)
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    client = StockClient(up.bootstrap)
    for number in range(4):
        client.write("flights", [b"%d" % value for value in range(500)], number)
    for replicas, generation in ((3, 2), (2, 3)):
        up.write("topics.yaml", flights.replace("replicas: 1", f"replicas: {replicas}"))
        wait_for(lambda: up.status("flights").observed_generation, generation.__eq__)
        wait_for(lambda: up.reason("flights") == "Reconciled")
        assert up.status("flights").replicas == replicas
        assert {len(in_sync) for in_sync in replicas_in_sync(up, "flights").values()} == {replicas}
    assert all(len(client.read("flights", number)) == 500 for number in range(4))
    up.write("topics.yaml", flights.replace("replicas: 1", "replicas: 4"))
    wait_for(lambda: up.reason("flights") == "NotEnoughBrokers")


def test_a_rolling_restart_loses_nothing_that_was_acknowledged_and_refuses_nothing(up: RunningUp) -> None:
    up.write("cluster.yaml", cluster_manifest(3, **QUICK, default_replication_factor=3, min_insync_replicas=2))
    up.write("topics.yaml", topic_manifest("flights", "partitions: 3", "replicas: 3"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    client = StockClient(up.bootstrap)
    producer = Producer({**client.settings, "enable.idempotence": True, "linger.ms": 5})
    errors: list[object] = []
    sent = 0

    def is_changed_after_some_were_sent() -> bool:
        nonlocal sent
        for number in range(3):
            producer.produce(
                "flights", b"%d" % sent, partition=number, on_delivery=lambda error, _: errors.append(error)
            )
        sent += 1
        producer.poll(0.005)
        return up.cluster_status().observed_generation == 2

    up.write("cluster.yaml", (up.manifests / "cluster.yaml").read_text() + "    num.partitions: 4\n")
    wait_for(is_changed_after_some_were_sent, seconds_max=60)
    assert producer.flush(30) == 0
    assert set(errors) == {None}
    assert up.log().count("restarts: its settings changed") == 3
    wait_for(lambda: up.cluster_reason() == "BrokersReady")
    wait_for(lambda: sorted(leaders(up, "flights").values()), [0, 1, 2].__eq__)
    expected = [b"%d" % number for number in range(sent)]
    assert [client.read("flights", number) == expected for number in range(3)] == [True] * 3


def test_a_cluster_that_was_stopped_has_all_its_records_in_every_replica_when_it_is_up_again(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("flights", "partitions: 6", "replicas: 3"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    send_to_each_partition(up, "flights", 6)
    bootstrap = up.bootstrap
    up.stop()
    up.start()
    wait_for(lambda: up.status("flights").under_replicated_partitions, (0).__eq__)
    assert up.bootstrap == bootstrap
    assert {len(in_sync) for in_sync in replicas_in_sync(up, "flights").values()} == {3}
    assert all(StockClient(bootstrap).read("flights", number) == [b"x"] for number in range(6))


def registered(bootstrap: str) -> set[int]:
    """The brokers that the cluster knows, those too that have stopped."""
    port = int(bootstrap.split(",")[0].rpartition(":")[2])
    return {broker.broker_id for broker in ask(port, DescribeClusterRequest(include_fenced_brokers=True), 2).brokers}


def test_brokers_are_added_and_emptied_and_removed_while_the_others_run(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("flights", "partitions: 3"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    before = [up.broker_pid(number) for number in range(3)]
    up.write("cluster.yaml", cluster_manifest(5, **QUICK))
    wait_for(lambda: up.cluster_status().ready_brokers == 5 and up.cluster_reason() == "BrokersReady")
    up.write("more.yaml", topic_manifest("wide", "partitions: 5", "replicas: 2"))
    wait_for(lambda: up.reason("wide") == "Reconciled")
    client = StockClient(up.bootstrap)
    for number in range(5):
        client.write("wide", [b"kept"], number)
    added = [up.broker_pid(number) for number in (3, 4)]
    assert {broker for row in replicas_in_sync(up, "wide").values() for broker in row} == set(range(5))
    up.write("cluster.yaml", THREE)
    wait_for(lambda: len(up.bootstrap.split(",")) == 3 and up.cluster_reason() == "BrokersReady", seconds_max=60)
    assert not any(map(alive, added))
    wait_for(lambda: registered(up.bootstrap), lambda brokers: brokers == {0, 1, 2})
    assert [up.broker_pid(number) for number in range(3)] == before
    assert all(len(row) == 2 and row <= {0, 1, 2} for row in replicas_in_sync(up, "wide").values())
    up.write("cluster.yaml", cluster_manifest(5, **QUICK))
    wait_for(lambda: up.cluster_status().ready_brokers == 5 and up.cluster_reason() == "BrokersReady")
    assert all(StockClient(up.bootstrap).read("wide", number) == [b"kept"] for number in range(5))


def await_offsets_on(up: RunningUp, brokers: int) -> None:
    """All replicas of the offsets topic, of which each broker has one of every partition."""
    wait_for(lambda: len(up.bootstrap.split(",")) == brokers and up.cluster_reason() == "BrokersReady", seconds_max=60)
    every = {number: set(range(brokers)) for number in range(4)}
    wait_for(lambda: settled_replicas(up, "__consumer_offsets"), lambda found: found == every, 60)


@pytest.mark.slow
def test_the_brokers_own_topics_get_more_and_fewer_replicas_with_the_brokers(up: RunningUp) -> None:
    few = {"offsets_topic_num_partitions": 4, **QUICK}
    up.write("cluster.yaml", cluster_manifest(1, **few))
    up.write("topics.yaml", topic_manifest("flights", "partitions: 1"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    consumer = StockClient(up.bootstrap).consumer("boards")
    consumer.commit(offsets=[TopicPartition("flights", 0, 2)], asynchronous=False)
    consumer.close()
    assert replicas_in_sync(up, "__consumer_offsets") == {number: {0} for number in range(4)}
    for brokers in (3, 2):
        up.write("cluster.yaml", cluster_manifest(brokers, **few))
        await_offsets_on(up, brokers)
    consumer = StockClient(up.bootstrap).consumer("boards")
    (committed,) = consumer.committed([TopicPartition("flights", 0)], timeout=20)
    consumer.close()
    assert committed.offset == 2


@pytest.mark.slow
def test_a_broker_that_was_added_gets_replicas_when_that_is_approved(up: RunningUp) -> None:
    up.write("cluster.yaml", cluster_manifest(2, **QUICK))
    up.write("topics.yaml", topic_manifest("flights", "partitions: 12", "replicas: 1"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    send_to_each_partition(up, "flights", 12)
    three = cluster_manifest(3, **QUICK, follower_replication_throttled_rate=50_000_000)
    up.write("cluster.yaml", three)
    told = wait_for(lambda: condition_of(up.cluster_status().conditions, "RebalanceProposed"), seconds_max=60)
    assert told is not None
    assert told.message.startswith("broker 2 holds less than the others: 4 partitions (")
    assert set(leaders(up, "flights").values()) == {0, 1}
    approved = "  name: quickstart\n  annotations: {barnabas.dev/rebalance: approve}\n"
    up.write("cluster.yaml", three.replace("  name: quickstart\n", approved))
    wait_for(lambda: sorted(leaders(up, "flights").values()), lambda found: found == [0] * 4 + [1] * 4 + [2] * 4, 60)
    wait_for(lambda: condition_of(up.cluster_status().conditions, "RebalanceProposed") is None)
    assert "set flights: leader.replication.throttled.replicas=" in up.log(), "before they moved"
    wait_for(lambda: "set flights: leader.replication.throttled.replicas to its default" in up.log())
    assert all(StockClient(up.bootstrap).read("flights", number) == [b"x"] for number in range(12))


def test_a_broker_that_a_topic_needs_stays_and_why_is_told(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("wide", "replicas: 3"))
    up.start()
    wait_for(lambda: up.reason("wide") == "Reconciled")
    up.write("cluster.yaml", cluster_manifest(2, **QUICK))
    wait_for(lambda: up.cluster_reason() == "BrokerHoldsReplicas")
    assert "wide must have 2 or fewer replicas first" in up.log()
    assert alive(up.broker_pid(2))
    up.write("topics.yaml", topic_manifest("wide", "replicas: 2"))
    wait_for(lambda: len(up.bootstrap.split(",")) == 2 and up.cluster_reason() == "BrokersReady", seconds_max=60)
