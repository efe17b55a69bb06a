"""Real consumers that are slow, stuck, crashed, reset and rewound on purpose: what the lag exporter tells of them."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Producer, TopicPartition

from barnabas_core.reset_mark import END, reset_mark
from barnabas_lag.evaluation.progress import Status
from drivers.broker_under_test import PROPERTIES, check_end, prepare_server
from drivers.builds import ToolMissing, java_driver
from drivers.interface import Member
from drivers.remote import RemoteClient
from harness.deadline import wait_for
from harness.kafka_jars import JarsMissing
from harness.require import missing
from harness.running_exporter import INTERVAL_S, RunningExporter
from harness.server_process import ServerProcess
from harness.soak import took
from harness.stock_client import StockClient

TOPIC = "flights"
EVERY_S = 0.05
SESSION_S = 10.0
TWO_SCRAPES_S = 2 * INTERVAL_S
SLACK_S = 20.0
UNTIL_S_MAX = 300.0

pytestmark = [pytest.mark.slow, pytest.mark.soak(only=True)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ServerProcess]:
    """With a topic that is written to all the time."""
    (folder := tmp_path / "broker").mkdir()
    server = prepare_server("barnabas", folder, PROPERTIES)
    server.start()
    client = StockClient(server.bootstrap)
    client.create_topic(TOPIC)
    ends = Event()
    writer = Thread(target=write, args=(client, ends))
    writer.start()
    try:
        yield server
        ends.set()
        writer.join()
        check_end("barnabas", server)
    finally:
        ends.set()
        server.close()


@pytest.fixture
def exporter(cluster: ServerProcess, tmp_path: Path) -> Iterator[RunningExporter]:
    (folder := tmp_path / "exporter").mkdir()
    running = RunningExporter(cluster.bootstrap, folder).start()
    try:
        yield running
    finally:
        running.process.close()


@pytest.fixture
def java(cluster: ServerProcess, tmp_path: Path) -> Iterator[RemoteClient]:
    try:
        command = java_driver(cluster.bootstrap)
    except (JarsMissing, ToolMissing) as reason:
        missing(str(reason))
        raise
    with closing(RemoteClient("java", command, tmp_path / "java.log")) as client:
        yield client


def write(client: StockClient, ends: Event) -> None:
    producer = Producer(client.settings)
    while not ends.wait(EVERY_S):
        producer.produce(TOPIC, b"on time", partition=0)
        producer.poll(0)
    producer.flush()


@contextmanager
def committing(member: Member) -> Iterator[None]:
    """All that the member has read, twice a second."""
    ends = Event()

    def run() -> None:
        while not ends.wait(0.5):
            member.commit()

    committer = Thread(target=run)
    committer.start()
    try:
        yield
    finally:
        ends.set()
        committer.join()


def until(exporter: RunningExporter, group: str, status: Status, seconds_max: float = UNTIL_S_MAX) -> None:
    """Wait until the exporter shows that."""
    begun_s = time.monotonic()
    exporter.wait_for_value("kafka_consumergroup_status", status, UNTIL_S_MAX, consumergroup=group)
    took(f"{group}: {status.name}", time.monotonic() - begun_s, seconds_max)


def commit(cluster: ServerProcess, group: str, offset: int, metadata: str = "") -> None:
    """As a tool does, for a group without members."""
    StockClient(cluster.bootstrap).commit(group, TopicPartition(TOPIC, 0, offset, metadata))


def read_and_commit(java: RemoteClient, exporter: RunningExporter) -> None:
    """As a member that polls on afterwards, and commits no more."""
    member = java.join("billing", "java", [TOPIC])
    wait_for(member.records)
    with committing(member):
        until(exporter, "billing", Status.OK)
        exporter.next_round()
        until(exporter, "billing", Status.OK)  # A commit that a busy machine holds up is a stall meanwhile.


def test_a_consumer_that_crashes_and_is_reset_is_told_to(
    cluster: ServerProcess, exporter: RunningExporter, java: RemoteClient
) -> None:
    read_and_commit(java, exporter)
    java.crash()
    until(exporter, "billing", Status.STOP, SESSION_S + TWO_SCRAPES_S + SLACK_S)
    commit(cluster, "billing", 20, reset_mark("2026-11-a", ()).rstrip(END))
    until(exporter, "billing", Status.OK, TWO_SCRAPES_S + SLACK_S)  # A declared reset is no rewind.
    assert exporter.value("kafka_consumergroup_current_offset", consumergroup="billing") == 20
    commit(cluster, "billing", 0)
    until(exporter, "billing", Status.REWIND, TWO_SCRAPES_S + SLACK_S)
