"""Metadata that somebody removes or puts back to an older copy: no acknowledged record is lost, and it heals."""

import shutil
import sqlite3
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from barnabas_operator.app.status import print_report
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.gather_report import gather_report
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
def test_what_nobody_remembers_is_set_aside_told_and_back_with_its_metadata(cluster: BarnabasCluster) -> None:
    written: list[list[bytes]] = [[] for _ in PARTITIONS]
    write_some(cluster, written)
    stop_all(cluster)
    with sqlite3.connect(store_of(cluster)) as connection:
        rows = connection.execute("SELECT * FROM documents WHERE key = 'topics/t'").fetchall()
        connection.execute("DELETE FROM documents WHERE key = 'topics/t'")
    for path in cluster.folder.glob("broker-*/logs-*/metadata-copy.json"):
        path.unlink()
    cluster.start(*BROKERS)
    wait_for(lambda: len(list(cluster.folder.glob("broker-*/logs-0/*-stray"))), lambda count: count == 9)
    with ClusterAdmin(cluster.bootstrap, SystemClock(), 5.0) as admin:
        report = gather_report(admin)
    assert sorted(each.broker_id for each in report.stray_logs) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    out = Console(file=StringIO())
    print_report(out, report, wide=False)
    assert "set aside: 9 logs" in out.file.getvalue()  # type: ignore[attr-defined]
    page = cluster.page(0, "/metrics")[1]
    assert f'barnabas_stray_logs{{log_dir="{cluster.log_dirs(0)[0]}"}} 3' in page
    stop_all(cluster)
    with sqlite3.connect(store_of(cluster)) as connection:
        connection.executemany("INSERT INTO documents VALUES (?, ?, ?)", rows)
    cluster.start(*BROKERS)
    check_all_is_there(cluster, written)
    assert 'barnabas_stray_logs{log_dir="' in cluster.page(0, "/metrics")[1]
    assert list(cluster.folder.glob("broker-*/logs-0/*-stray")) == []


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
