"""Metadata that somebody removes or puts back to an older copy: no acknowledged record is lost, and it heals."""

import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from barnabas_operator.app.status import print_report
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.gather_report import gather_report
from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.topics.topic_steps import TopicStep
from barnabas_operator.reconcile.kind_reconciler import Seen
from barnabas_operator.reconcile.topics.reconcile_topics import reconcile_topics
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec
from barnabas_operator.resources.object_meta import ObjectMeta
from barnabas_operator.resources.topic import Topic, TopicSpec
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.writer import Writer

LEASES = {"broker.heartbeat.interval.ms": "250", "broker.session.timeout.ms": "2000", "min.insync.replicas": "2"}
PARTITIONS = range(3)
BROKERS = range(3)
WRITES_WAIT_S = 120.0
"""Longer than all brokers are away."""


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


@contextmanager
def nothing_lost(cluster: BarnabasCluster, topic: str) -> Iterator[Sequence[Writer]]:
    """While inside clients write to each partition, also while brokers are away; then all that was told is read."""
    with ExitStack() as writing:
        writers = [Writer(cluster.client(), topic, number, patience_s=WRITES_WAIT_S) for number in PARTITIONS]
        yield [writing.enter_context(writer) for writer in writers]
    for writer, number in zip(writers, PARTITIONS, strict=True):
        assert set(cluster.client().read(topic, number)) >= set(writer.acknowledged)


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
    cluster.create_topic("busy", 3, 3)
    with nothing_lost(cluster, "busy") as writers:
        wait_for_more(writers)
        stop_all(cluster)
        older = store_of(cluster).with_suffix(".older")
        shutil.copy(store_of(cluster), older)
        cluster.start(*BROKERS)
        cluster.wait_until_full("t", "busy")
        kill_each_once(cluster)
        write_some(cluster, written)
        wait_for_more(writers)
        stop_all(cluster)
        forget_store(cluster)
        shutil.copy(older, store_of(cluster))
        cluster.start(*BROKERS)
        check_all_is_there(cluster, written)
        wait_for_more(writers)


@pytest.mark.slow
def test_a_metadata_file_that_was_removed_comes_back(cluster: BarnabasCluster) -> None:
    written: list[list[bytes]] = [[] for _ in PARTITIONS]
    write_some(cluster, written)
    cluster.create_topic("busy", 3, 3)
    with nothing_lost(cluster, "busy") as writers:
        wait_for_more(writers)
        stop_all(cluster)
        forget_store(cluster)
        cluster.start(*BROKERS)
        check_all_is_there(cluster, written)
        wait_for_more(writers)


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
        assert reconciled(admin, "LogsSetAside") == []
    assert sorted(each.broker_id for each in report.stray_logs) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    out = Console(file=StringIO())
    print_report(out, report, wide=False)
    assert "set aside: 9 logs" in out.file.getvalue()  # type: ignore[attr-defined]
    check_strays_told(cluster, 3)
    stop_all(cluster)
    with sqlite3.connect(store_of(cluster)) as connection:
        connection.executemany("INSERT INTO documents VALUES (?, ?, ?)", rows)
    cluster.start(*BROKERS)
    check_all_is_there(cluster, written)
    with ClusterAdmin(cluster.bootstrap, SystemClock(), 5.0) as admin:
        assert reconciled(admin, "Reconciled") == []
    check_strays_told(cluster, 0)
    assert list(cluster.folder.glob("broker-*/logs-0/*-stray")) == []


@pytest.mark.slow
def test_rows_that_are_removed_by_hand_while_clients_write_come_back(cluster: BarnabasCluster) -> None:
    with nothing_lost(cluster, "t") as writers:
        wait_for_more(writers)
        remove_topics(cluster)
        wait_for_more(writers)
        for number in BROKERS:
            cluster.kill(number)
            wait_for_more(writers)
            cluster.start(number)
            cluster.wait_until_full("t")
        wait_for(lambda: topics_in_the_store(cluster), lambda found: found == ["topics/t"])
        remove_topics(cluster)
        wait_for_more(writers)
        for number in BROKERS:
            cluster.kill(number)
        cluster.start(*BROKERS)
        cluster.wait_until_full("t")


def reconciled(admin: ClusterAdmin, reason: str) -> Sequence[TopicStep]:
    """What a declared topic's reconciliation does, where its Ready has this reason then."""
    cluster = Cluster(metadata=ObjectMeta(name="air"), spec=ClusterSpec(brokers=Brokers(replicas=3)))
    topic = Topic(metadata=ObjectMeta(name="t"), spec=TopicSpec(partitions=3, replicas=3))
    outcome = reconcile_topics(admin, DesiredState(cluster, (topic,), ()), "now", Seen(admin.cluster_state()))
    status = outcome.wanted.topics[0].status
    assert status is not None
    assert status.conditions[0].reason == reason, status
    return outcome.done


def check_strays_told(cluster: BarnabasCluster, count: int) -> None:
    """By each broker."""
    for number in BROKERS:
        lines = cluster.page(number, "/metrics")[1].splitlines()
        assert f'barnabas_stray_logs{{log_dir="{cluster.log_dirs(number)[0]}"}} {count}' in lines


def wait_for_more(writers: Sequence[Writer]) -> None:
    for writer in writers:
        writer.wait_for_more()


def remove_topics(cluster: BarnabasCluster) -> None:
    with closing(sqlite3.connect(store_of(cluster), timeout=30)) as connection, connection:
        assert connection.execute("DELETE FROM documents WHERE key LIKE 'topics/%'").rowcount > 0


def topics_in_the_store(cluster: BarnabasCluster) -> list[str]:
    with closing(sqlite3.connect(store_of(cluster), timeout=30)) as connection:
        return [key for (key,) in connection.execute("SELECT key FROM documents WHERE key LIKE 'topics/%'")]


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
