"""Metadata that somebody removes or puts back to an older copy: no acknowledged record is lost, and it heals."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for

LEASES = {"broker.heartbeat.interval.ms": "250", "broker.session.timeout.ms": "2000", "min.insync.replicas": "2"}
PARTITIONS = range(3)
BROKERS = range(3)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=3, properties=LEASES) as running:
        running.create_topic("t", 3, 3)
        yield running


def store_of(cluster: BarnabasCluster) -> Path:
    return cluster.folder / "metadata.sqlite"


def write_some(cluster: BarnabasCluster, written: list[list[bytes]]) -> None:
    """To each partition, acknowledged by all."""
    for number in PARTITIONS:
        values = [b"%d" % value for value in range(len(written[number]), len(written[number]) + 100)]
        cluster.client().write("t", values, number)
        written[number] += values


def kill_each_once(cluster: BarnabasCluster) -> None:
    for number in BROKERS:
        cluster.kill(number)
        cluster.start(number)
        cluster.wait_until_full("t")


def stop_all(cluster: BarnabasCluster) -> None:
    for number in BROKERS:
        cluster.stop(number)


def check_all_is_there(cluster: BarnabasCluster, written: list[list[bytes]]) -> None:
    cluster.wait_until_full("t")
    write_some(cluster, written)
    for number in PARTITIONS:
        assert cluster.client().read("t", number) == written[number]


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(5))
def test_an_older_copy_of_the_metadata_that_is_put_back_heals(cluster: BarnabasCluster, attempt: int) -> None:
    written: list[list[bytes]] = [[] for _ in PARTITIONS]
    write_some(cluster, written)
    stop_all(cluster)
    older = store_of(cluster).with_suffix(".older")
    shutil.copy(store_of(cluster), older)
    cluster.start(*BROKERS)
    cluster.wait_until_full("t")
    kill_each_once(cluster)
    write_some(cluster, written)
    stop_all(cluster)
    forget_store(cluster)
    shutil.copy(older, store_of(cluster))
    cluster.start(*BROKERS)
    check_all_is_there(cluster, written)


@pytest.mark.slow
def test_a_metadata_file_that_was_removed_comes_back(cluster: BarnabasCluster) -> None:
    written: list[list[bytes]] = [[] for _ in PARTITIONS]
    write_some(cluster, written)
    stop_all(cluster)
    forget_store(cluster)
    cluster.start(*BROKERS)
    check_all_is_there(cluster, written)


@pytest.mark.slow
def test_rows_that_are_removed_by_hand_come_back(cluster: BarnabasCluster) -> None:
    written: list[list[bytes]] = [[] for _ in PARTITIONS]
    write_some(cluster, written)
    with sqlite3.connect(store_of(cluster)) as connection:
        connection.execute("DELETE FROM documents WHERE key LIKE 'topics/%'")
    write_some(cluster, written)
    kill_each_once(cluster)
    check_all_is_there(cluster, written)
    with sqlite3.connect(store_of(cluster)) as connection:
        connection.execute("DELETE FROM documents WHERE key LIKE 'topics/%'")
    for number in BROKERS:
        cluster.kill(number)
    cluster.start(*BROKERS)
    check_all_is_there(cluster, written)


def test_a_deleted_topic_leaves_nothing(cluster: BarnabasCluster) -> None:
    write_some(cluster, [[] for _ in PARTITIONS])
    cluster.kill(2)
    client = cluster.client()
    client.admin.delete_topics(["t"])["t"].result(30)
    cluster.start(2)
    wait_for(lambda: [path for path in cluster.folder.glob("broker-*/logs-0/t-*") if "-delete" not in path.name] == [])


def forget_store(cluster: BarnabasCluster) -> None:
    for path in cluster.folder.glob("metadata.sqlite*"):
        if path.suffix != ".older":
            path.unlink()
