"""Metadata that was removed: running brokers restore what they can, and the rest waits for a command."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from rich.console import Console

from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.app.status import print_report
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.gather_report import gather_report
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for

LEASES = {"broker.heartbeat.interval.ms": "250", "min.insync.replicas": "2"}
PARTITIONS = range(3)
BROKERS = range(3)
VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=3, properties=LEASES) as running:
        running.create_topic("t", 3, 3)
        yield running


def store_of(cluster: BarnabasCluster) -> Path:
    return cluster.folder / "metadata.sqlite"


def logs_of(cluster: BarnabasCluster, topic: str) -> list[str]:
    return sorted(path.name for path in cluster.folder.glob(f"broker-*/logs-0/{topic}-*"))


def stop_all(cluster: BarnabasCluster) -> None:
    for number in list(cluster.running):
        assert cluster.stop(number) == 0


def committed(cluster: BarnabasCluster) -> int:
    consumer = cluster.client().consumer("readers")
    try:
        return int(consumer.committed([TopicPartition("t", 0)], timeout=PATIENCE_S)[0].offset)
    finally:
        consumer.close()


@pytest.mark.slow
def test_a_lost_store_loses_no_records_and_its_topics_are_restored_by_a_command(cluster: BarnabasCluster) -> None:
    for number in PARTITIONS:
        cluster.client().write("t", VALUES, number)
    cluster.client().commit("readers", TopicPartition("t", 0, 42))
    stop_all(cluster)
    before = logs_of(cluster, "t")
    for path in cluster.folder.glob("metadata.sqlite*"):
        path.unlink()
    cluster.start(*BROKERS)
    cluster.wait_until_joined()
    with pytest.raises(KafkaException, match="`barnabas restore-metadata` restores the topic"):
        cluster.create_topic("t", 3, 3)
    wait_for(lambda: status(cluster), lambda text: " are not served, " in text)
    assert logs_of(cluster, "t") == before
    for number in BROKERS:
        wait_for(partial(cluster.page, number, "/readyz"), lambda answer: answer == (200, "ok\n"))
    assert "t   " in cluster.command("restore-metadata")
    assert logs_of(cluster, "t") == before
    assert "Restored 2 topics." in cluster.command("restore-metadata", "--execute")
    cluster.wait_until_full("t", "__consumer_offsets")
    for number in PARTITIONS:
        cluster.client().write("t", [b"more"], number)
        assert cluster.client().read("t", number) == [*VALUES, b"more"]
    assert committed(cluster) == 42
    wait_for(lambda: status(cluster), lambda text: " are not served, " not in text)


def test_a_forgotten_topic_leaves_no_logs_and_can_be_created_again(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=1) as cluster:
        cluster.create_topic("t", 2, 1)
        cluster.client().write("t", VALUES)
        stop_all(cluster)
        remove_topics(cluster)
        cluster.start(0)
        assert "in use" not in cluster.command("forget-topic", "nowhere", exit_code=1)
        cluster.command("forget-topic", "t", "--execute")
        wait_for(lambda: [name for name in logs_of(cluster, "t") if not name.endswith("-delete")] == [])
        cluster.create_topic("t", 1, 1)
        assert cluster.client().read("t") == []


def status(cluster: BarnabasCluster) -> str:
    with ClusterAdmin(cluster.bootstrap, SystemClock(), PATIENCE_S) as admin:
        report = gather_report(admin)
    text = StringIO()
    print_report(Console(file=text), report, wide=False)
    return text.getvalue()


def remove_topics(cluster: BarnabasCluster) -> None:
    with closing(sqlite3.connect(store_of(cluster), timeout=PATIENCE_S)) as connection, connection:
        assert connection.execute("DELETE FROM documents WHERE key LIKE 'topics/%'").rowcount > 0


def test_a_topic_deleted_while_a_broker_is_down_leaves_no_logs(cluster: BarnabasCluster) -> None:
    cluster.client().write("t", VALUES)
    cluster.kill(2)
    client = cluster.client()
    client.admin.delete_topics(["t"])["t"].result(PATIENCE_S)
    cluster.start(2)
    wait_for(lambda: [name for name in logs_of(cluster, "t") if "-delete" not in name] == [])
