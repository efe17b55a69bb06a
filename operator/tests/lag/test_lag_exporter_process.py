"""`barnabas lag-exporter` as a process: clusters that are unreachable, hang or lose a broker; limits; signals."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from kafka.protocol.metadata import MetadataRequest

from barnabas_kafka.asking import Asking
from barnabas_kafka.connection import connected_client
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S, wait_for
from harness.running_exporter import RunningExporter
from harness.server_process import free_port
from harness.soak import took

SCRAPE_SECONDS_MAX = 2.0
Start = Callable[..., RunningExporter]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts an exporter; in the end each one must stop cleanly after SIGTERM."""
    running: list[RunningExporter] = []

    def started(bootstrap: str, *options: str) -> RunningExporter:
        folder = tmp_path / f"exporter-{len(running)}"
        folder.mkdir()
        running.append(RunningExporter(bootstrap, folder, *options))
        return running[-1].start()

    try:
        yield started
        for each in running:
            assert each.process.stop() == 0, each.log()
            assert "Traceback" not in each.log(), each.log()
    finally:
        for each in running:
            each.process.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """Three brokers; each leads one partition of `flights`, where the group `billing` has read the first record."""
    with barnabas_cluster(tmp_path_factory.mktemp("cluster"), 3) as running:
        running.create_topic("flights", 3, assignment=[[0], [1], [2]])
        running.create_topic("other", 1, assignment=[[0, 1, 2]])
        client = running.client()
        for partition in range(3):
            client.write("flights", [b"1", b"2", b"3"], partition)
        for group in ("billing", "audit"):
            client.commit(group, *(TopicPartition("flights", number, 1) for number in range(3)))
        yield running


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--bootstrap", "localhost", "one or more HOST:PORT or [IPV6]:PORT, separated by commas"),
        (
            "--bootstrap",
            "localhost:9092,localhost:99999",
            "one or more HOST:PORT or [IPV6]:PORT, separated by commas, with ports from 1 to",
        ),
        ("--bootstrap", "::1:9092", "one or more HOST:PORT or [IPV6]:PORT"),
        ("--sasl.mechanism", "GSSAPI", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("--interval", "0.5", "a number from 1 to 3600"),
        ("--interval", "soon", "a number from 1 to 3600"),
        ("--listen-address", "here:99999", "HOST:PORT, [IPV6]:PORT or :PORT, with a port from 0 to 65535"),
        ("--topic.filter", "(", "a regular expression of Python"),
        ("--group.exclude", "[", "a regular expression of Python"),
        ("--max-groups", "-1", "a whole number from 0 to 10000000"),
        ("--max-group-partitions", "1.5", "a whole number from 0 to 10000000"),
    ],
)
def test_a_bad_option_is_refused_with_its_value_and_what_is_allowed(option: str, value: str, allowed: str) -> None:
    done = barnabas_here("lag-exporter", "--bootstrap", "localhost:9092", option, value)
    assert done.returncode == 2
    assert f"argument {option}: {value!r}; allowed: {allowed}" in done.stderr


def test_the_exporter_exits_with_the_reason_if_its_address_is_in_use(
    start: Start, barnabas: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    taken = f"127.0.0.1:{start('127.0.0.1:1').process.port}"
    done = barnabas("lag-exporter", "--bootstrap", "127.0.0.1:1", "--listen-address", taken)
    assert done.returncode == 1
    assert f"--listen-address {taken}: " in done.stderr
    assert "address already in use" in done.stderr


@pytest.mark.slow
def test_the_exporter_stays_healthy_and_logs_once_that_no_broker_answers(start: Start) -> None:
    bootstrap = f"127.0.0.1:{free_port()}"
    exporter = start(bootstrap)
    wait_for(lambda: (exporter.value("barnabas_lag_exporter_failed_rounds_total") or 0) >= 2, pause_s=0.5)
    assert exporter.value("barnabas_lag_exporter_up") == 0
    assert exporter.value("barnabas_lag_exporter_round_age_seconds") == float("inf")
    assert exporter.value("kafka_brokers") is None
    assert exporter.page("/healthz") == (200, "ok\n")
    assert exporter.page("/")[0] == 404
    assert exporter.log().count(f"no broker at {bootstrap} answers") == 1


@pytest.mark.slow
def test_a_scrape_reports_the_age_of_its_values_and_never_waits_for_the_cluster(
    start: Start, cluster: BarnabasCluster
) -> None:
    exporter = start(cluster.bootstrap)
    exporter.wait_for_value("kafka_consumergroup_lag_sum", 6, consumergroup="billing")
    for number in range(3):
        cluster.pause(number)
    try:
        wait_for(lambda: (exporter.value("barnabas_lag_exporter_round_age_seconds") or 0) > 3, pause_s=0.2)
        begun = time.monotonic()
        assert exporter.value("kafka_consumergroup_lag_sum", consumergroup="billing") == 6
        took("a scrape while all brokers stand still", time.monotonic() - begun, SCRAPE_SECONDS_MAX)
        exporter.wait_for_value("barnabas_lag_exporter_up", 0)
        # Values that are too old are no longer exported.
        exporter.wait_for_value("kafka_consumergroup_lag_sum", None, consumergroup="billing")
        assert exporter.page("/healthz")[0] == 200
    finally:
        for number in range(3):
            cluster.resume(number)
    exporter.wait_for_value("kafka_consumergroup_lag_sum", 6, consumergroup="billing")
    assert exporter.value("barnabas_lag_exporter_up") == 1


def test_an_unreachable_broker_removes_only_the_metrics_of_its_own_partitions(
    start: Start, cluster: BarnabasCluster
) -> None:
    exporter = start(cluster.bootstrap)
    exporter.wait_for_value("kafka_brokers", 3)
    client = cluster.client()
    described = client.admin.describe_consumer_groups(["billing"])["billing"].result(PATIENCE_S)
    gone = next(number for number in range(3) if number != described.coordinator.id)
    cluster.kill(gone)
    try:
        exporter.wait_for_value("kafka_consumergroup_lag_sum", 4, consumergroup="billing", topic="flights")
        exporter.wait_for_value("kafka_topic_partition_leader", -1, topic="flights", partition=str(gone))
        assert exporter.value("kafka_topic_partition_current_offset", topic="flights", partition=str(gone)) is None
        exporter.wait_for_value("kafka_topic_partition_under_replicated_partition", 1, topic="other")
        assert exporter.value("barnabas_lag_exporter_up") == 1
    finally:
        cluster.start(gone)
    exporter.wait_for_value("kafka_consumergroup_lag_sum", 6, consumergroup="billing")


@pytest.mark.slow
def test_a_request_for_any_broker_goes_to_the_next_one_if_the_first_is_paused(
    cluster: BarnabasCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka.net.manager.random.shuffle", list.sort)  # The client asks broker 0 first.
    client = connected_client(cluster.bootstrap, 30.0, "test")
    everything = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    try:
        assert len(Asking(client).ask_any(everything).brokers) == 3
        cluster.pause(0)
        asking = Asking(client)
        assert asking.ask_any(everything).brokers
        assert [each.broker_id for each in asking.failures] == [0]
    finally:
        cluster.resume(0)
        client.close()


def test_filters_choose_topics_and_groups(start: Start, cluster: BarnabasCluster) -> None:
    exporter = start(cluster.bootstrap, "--topic.filter", "^fl", "--group.exclude", "^aud")
    exporter.wait_for_value("kafka_consumergroup_lag_sum", 6, consumergroup="billing")
    assert {labels["topic"] for labels, _ in exporter.samples()["kafka_topic_partitions"]} == {"flights"}
    assert {labels["consumergroup"] for labels, _ in exporter.samples()["kafka_consumergroup_members"]} == {"billing"}


def test_limits_first_cut_off_details_and_are_logged_once(start: Start, cluster: BarnabasCluster) -> None:
    limits = ("--max-group-partitions", "4", "--max-topic-partitions", "3", "--topic.exclude", "^__")
    exporter = start(cluster.bootstrap, *limits)
    exporter.wait_for_value("kafka_consumergroup_lag_sum", 6, consumergroup="billing")
    assert exporter.values("kafka_consumergroup_lag", consumergroup="audit") == [2, 2, 2]
    assert exporter.values("kafka_consumergroup_lag", consumergroup="billing") == []
    assert len(exporter.values("kafka_topic_partition_leader")) == 3
    assert exporter.value("kafka_topic_partitions", topic="other") == 1
    for option in ("max-group-partitions", "max-topic-partitions"):
        assert exporter.value("barnabas_lag_exporter_cut_off", option=option) == 1
    exporter.next_round()
    assert exporter.log().count("because of --max-group-partitions, 1 topics or groups are not exported in full") == 1


def test_records_held_back_by_an_open_transaction_are_exported_by_partition(
    cluster: BarnabasCluster, start: Start
) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay", "transaction.timeout.ms": 900_000}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("other", b"undecided")
    assert producer.flush(PATIENCE_S) == 0
    exporter = start(cluster.bootstrap)
    lag = "kafka_cluster_partition_laststableoffsetlag"
    wait_for(lambda: exporter.value(lag, topic="other", partition="0") == 1)
    assert exporter.value(lag, topic="flights", partition="0") == 0
    producer.abort_transaction(PATIENCE_S)
    wait_for(lambda: exporter.value(lag, topic="other", partition="0") == 0)
