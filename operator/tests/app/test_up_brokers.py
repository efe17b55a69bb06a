"""`barnabas up` with several brokers: started together, watched one by one, restarted in turn, added and removed."""

import os
import signal
import subprocess
from collections.abc import Callable

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from harness.deadline import wait_for
from harness.running_up import RunningUp, alive, cluster_manifest, topic_manifest

Run = Callable[..., subprocess.CompletedProcess[str]]

# A broker that was killed may come back once its lease has run out.
QUICK = {"broker_heartbeat_interval_ms": 200, "broker_session_timeout_ms": 1500}
THREE = cluster_manifest(3, **QUICK)


def leaders(up: RunningUp, topic: str) -> dict[int, int]:
    """By partition, as a client sees them."""
    topics = AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(timeout=10).topics
    return {number: part.leader for number, part in topics[topic].partitions.items()} if topic in topics else {}


def send_to_each_partition(up: RunningUp, topic: str, partitions: int) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": up.bootstrap, "message.timeout.ms": 20_000})
    for number in range(partitions):
        producer.produce(topic, b"x", partition=number, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(30) == 0
    assert failures == []


def test_three_brokers_share_the_partitions_and_nothing_is_left_running(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("flights", "partitions: 6", "replicas: 1"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    assert sorted(leaders(up, "flights").values()) == [0, 0, 1, 1, 2, 2]
    send_to_each_partition(up, "flights", 6)
    status = up.cluster().status
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
    controller = up.cluster().status.controller
    before = [up.broker_pid(number) for number in range(3)]
    up.write("cluster.yaml", THREE + "    num.partitions: 4\n")
    wait_for(lambda: up.cluster().status.observed_generation == 2 and up.cluster_reason() == "BrokersReady")
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
        strange.write_text("version=1\ncluster.id=another\nnode.id=77\n", encoding="utf-8")
    up.write("cluster.yaml", THREE.replace("      - id: 1\n", "      - id: 1\n      - id: 9\n"))
    wait_for(lambda: up.cluster_reason() == "BrokerFailed")
    wait_for(lambda: up.cluster().status.ready_brokers == 3)
    assert up.log().count("restarts: its settings have changed") == 1
    up.write("cluster.yaml", THREE)
    wait_for(lambda: up.cluster_reason() == "BrokersReady")


def test_brokers_are_added_and_an_empty_one_removed_while_the_others_run(up: RunningUp) -> None:
    up.write("cluster.yaml", THREE)
    up.write("topics.yaml", topic_manifest("flights", "partitions: 3"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    before = [up.broker_pid(number) for number in range(3)]
    up.write("cluster.yaml", cluster_manifest(5, **QUICK))
    wait_for(lambda: up.cluster().status.ready_brokers == 5 and up.cluster_reason() == "BrokersReady")
    up.write("more.yaml", topic_manifest("wide", "partitions: 4", "replicas: 1"))
    wait_for(lambda: up.reason("wide") == "Reconciled")
    assert len(up.bootstrap.split(",")) == 5
    added = [up.broker_pid(number) for number in (3, 4)]
    up.write("cluster.yaml", THREE)
    held = {number: [f"wide-{p}" for p, leader in leaders(up, "wide").items() if leader == number] for number in (3, 4)}
    if held[4]:
        wait_for(lambda: up.cluster_reason() == "BrokerHoldsReplicas")
        assert alive(added[1])
    up.write("more.yaml", topic_manifest("wide", "deletionPolicy: Delete"))
    wait_for(lambda: up.status("wide").observed_generation == 2)
    (up.manifests / "more.yaml").unlink()
    wait_for(lambda: up.cluster_reason() == "BrokersReady" and len(up.bootstrap.split(",")) == 3)
    assert not any(map(alive, added))
    assert [up.broker_pid(number) for number in range(3)] == before
