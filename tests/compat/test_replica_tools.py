"""Apache Kafka's tools on three brokers: kafka-reassign-partitions, kafka-leader-election, kafka-topics."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin import DescribeClusterRequest

from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for

SERVER = "--bootstrap-server localhost:9092"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


@pytest.fixture
def cluster_tools(java: RemoteClient, cluster: BarnabasCluster) -> KafkaTools:
    return KafkaTools(java, cluster.bootstrap)


def file_of(folder: Path, value: Any) -> Path:
    path = folder / "partitions.json"
    path.write_text(json.dumps(value))
    return path


def test_partitions_are_reassigned_with_a_throttle_and_verified(
    cluster: BarnabasCluster, cluster_tools: KafkaTools, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, 2, assignment=[[0], [1]])
    client = cluster.client()
    client.write(topic, [b"%d" % number for number in range(50)])
    moves = [
        {"topic": topic, "partition": 0, "replicas": [2, 1]},
        {"topic": topic, "partition": 1, "replicas": [0, 2, 1]},
    ]
    plan = file_of(tmp_path, {"version": 1, "partitions": moves})
    tool = f"kafka-reassign-partitions.sh {SERVER} --reassignment-json-file {plan}"
    started = cluster_tools.check(f"{tool} --execute --throttle 10000000")
    assert "Successfully started partition reassignments" in started
    verified = wait_for(lambda: cluster_tools.check(f"{tool} --verify"), lambda text: "still in progress" not in text)
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert "Clearing topic-level throttles" in verified
    described = cluster_tools.check(f"kafka-topics.sh {SERVER} --describe --topic {topic}")
    assert "Partition: 0\tLeader: 2\tReplicas: 2,1\tIsr:" in described
    assert "Replicas: 0,2,1" in described
    assert client.read(topic) == [b"%d" % number for number in range(50)]


def test_a_reassignment_is_listed_and_cancelled(
    cluster: BarnabasCluster, cluster_tools: KafkaTools, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, assignment=[[0]])
    cluster.kill(2)
    try:
        cluster.reassign(topic, [2])
        tool = f"kafka-reassign-partitions.sh {SERVER}"
        listed = wait_for(lambda: cluster_tools.check(f"{tool} --list"), lambda text: topic in text)
        assert f"{topic}-0: replicas: 2,0. adding: 2. removing: 0." in listed
        plan = file_of(tmp_path, {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2]}]})
        cancelled = cluster_tools.check(f"{tool} --reassignment-json-file {plan} --cancel --preserve-throttles")
        assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
        wait_for(lambda: cluster_tools.check(f"{tool} --list"), lambda text: "No partition reassignments" in text)
        wait_for(lambda: cluster.partition(topic, 0).replicas, lambda replicas: replicas == (0,))
    finally:
        cluster.start(2)


def test_a_reassignment_to_an_unknown_broker_is_refused(
    cluster: BarnabasCluster, cluster_tools: KafkaTools, topic: str, tmp_path: Path
) -> None:
    cluster.create_topic(topic, assignment=[[0]])
    plan = file_of(tmp_path, {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [9]}]})
    tool = f"kafka-reassign-partitions.sh {SERVER} --reassignment-json-file {plan}"
    refused = cluster_tools.run(f"{tool} --execute")
    assert refused.status == 1
    assert "9" in refused.text
    assert cluster.partition(topic, 0).replicas == (0,)


def test_preferred_leaders_are_elected(cluster: BarnabasCluster, cluster_tools: KafkaTools, topic: str) -> None:
    cluster.create_topic(topic, assignment=[[1, 0, 2]])
    cluster.restart(1)
    cluster.wait_until_full(topic)
    assert cluster.leader(topic) != 1
    tool = f"kafka-leader-election.sh {SERVER} --election-type preferred --topic {topic} --partition 0"
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in cluster_tools.check(tool)
    wait_for(lambda: cluster.leader(topic), lambda leader: leader == 1)
    assert f"Valid replica already elected for partitions {topic}-0" in cluster_tools.check(tool)


def test_only_a_dead_broker_can_be_unregistered(cluster: BarnabasCluster, cluster_tools: KafkaTools) -> None:
    tool = f"kafka-cluster.sh unregister {SERVER} --id"
    assert "is not currently registered" in cluster_tools.run(f"{tool} 9").text
    assert "broker 2 is alive" in cluster_tools.run(f"{tool} 2").text
    cluster.add_broker(3)
    cluster.start(3)
    assert cluster.stop(3) == 0
    assert "Broker 3 is no longer registered." in cluster_tools.check(f"{tool} 3")
    told = cluster.ask(0, DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert {broker.broker_id for broker in told.brokers} == {0, 1, 2}
    cluster.remove_broker(3)


def test_partitions_with_faults_are_described(cluster: BarnabasCluster, cluster_tools: KafkaTools, topic: str) -> None:
    cluster.create_topic(topic, assignment=[[1, 0]], config={"min.insync.replicas": "2"})
    cluster.kill(0)
    try:
        # The tool may ask either broker.
        wait_for(
            lambda: [cluster.partition(topic, 0, number).isr for number in (1, 2)], lambda told: told == [(1,)] * 2
        )
        for fault in ("under-replicated", "under-min-isr"):
            shown = cluster_tools.check(f"kafka-topics.sh {SERVER} --describe --{fault}-partitions")
            assert f"Topic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1,0\tIsr: 1\tElr: 0\tLastKnownElr:" in shown
    finally:
        cluster.start(0)
