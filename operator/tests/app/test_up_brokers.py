"""`barnabas up` with several brokers: started together, watched one by one, restarted in turn, added and removed."""

import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka.protocol.admin import DescribeClusterRequest

from harness.ask import ask
from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import RunningUp, alive, cluster_manifest, topic_manifest
from harness.stock_client import StockClient

Run = Callable[..., subprocess.CompletedProcess[str]]

# A broker that was killed may come back once its lease has run out.
QUICK = {"broker_heartbeat_interval_ms": 200, "broker_session_timeout_ms": 1500}
OF_ANOTHER_BROKER = "version=1\ncluster.id=another\nnode.id=77\ndirectory.id=AAAAAAAAAAAAAAAAAAAACQ\n"
THREE = cluster_manifest(3, **QUICK)


def leaders(up: RunningUp, topic: str) -> dict[int, int]:
    """Return the leaders by partition, as a client sees them."""
    topics = AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(timeout=PATIENCE_S).topics
    return {number: part.leader for number, part in topics[topic].partitions.items()} if topic in topics else {}


def replicas_in_sync(up: RunningUp, topic: str) -> dict[int, set[int]]:
    """Return the in-sync replicas by partition; fail unless all replicas are in sync."""
    found = (
        AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
    )
    assert all(set(part.isrs) == set(part.replicas) for part in found.values())
    return {number: set(part.isrs) for number, part in found.items()}


def send_to_each_partition(up: RunningUp, topic: str, partitions: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": up.bootstrap, "message.timeout.ms": 300_000})
    for number in range(partitions):
        producer.produce(topic, b"x", partition=number, on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert set(failures) == {None}


def test_three_brokers_share_the_partitions_and_stop_with_up(up: RunningUp) -> None:
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


def test_up_reverts_settings_with_which_a_broker_cannot_start(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.start()
    for number in range(3):
        strange = up.data / f"broker-{number}" / "volume-9" / "meta.properties"
        strange.parent.mkdir()
        strange.write_text(OF_ANOTHER_BROKER, encoding="utf-8")
    up.write("cluster.yaml", THREE.replace("      - id: 1\n", "      - id: 1\n      - id: 9\n"))
    wait_for(lambda: up.cluster_reason() == "BrokerFailed")
    wait_for(lambda: up.cluster_status().ready_brokers == 3)
    assert up.log().count("restarts because its settings have changed") == 1
    up.write("cluster.yaml", THREE)
    wait_for(lambda: up.cluster_reason() == "BrokersReady")


@pytest.mark.soak(only=True)
def test_a_rolling_restart_loses_no_acknowledged_record_and_fails_no_request(up: RunningUp) -> None:
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
    wait_for(is_changed_after_some_were_sent)
    assert producer.flush(PATIENCE_S) == 0
    assert set(errors) == {None}
    assert up.log().count("restarts because its settings have changed") == 3
    wait_for(lambda: up.cluster_reason() == "BrokersReady")
    wait_for(lambda: sorted(leaders(up, "flights").values()), [0, 1, 2].__eq__)
    expected = [b"%d" % number for number in range(sent)]
    assert [client.read("flights", number) == expected for number in range(3)] == [True] * 3


def registered(bootstrap: str) -> set[int]:
    """Return the ids of all registered brokers, fenced ones included."""
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
    wait_for(lambda: len(up.bootstrap.split(",")) == 3 and up.cluster_reason() == "BrokersReady")
    assert not any(map(alive, added))
    wait_for(lambda: registered(up.bootstrap), lambda brokers: brokers == {0, 1, 2})
    assert [up.broker_pid(number) for number in range(3)] == before
    assert all(len(row) == 2 and row <= {0, 1, 2} for row in replicas_in_sync(up, "wide").values())
    up.write("cluster.yaml", cluster_manifest(5, **QUICK))
    wait_for(lambda: up.cluster_status().ready_brokers == 5 and up.cluster_reason() == "BrokersReady")
    assert all(StockClient(up.bootstrap).read("wide", number) == [b"kept"] for number in range(5))
