"""What the page of the cluster says is wrong: moves, partitions without a leader, transactions, certificates."""

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka.protocol.metadata import MetadataRequest

from barnabas_console.app.certificates import CHECK_S, RETRY_S, Certificates
from barnabas_console.kafka.reading import read_cluster_once
from barnabas_console.kafka.transactions import transactions_of
from barnabas_console.model.snapshot import (
    Broker,
    LogDir,
    Moving,
    Reassignment,
    Seen,
    Snapshot,
    Unknown,
    why_no_leader,
)
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import Asking
from barnabas_kafka.command_config import CommandConfig
from barnabas_kafka.connection import connected_client
from barnabas_kafka.security import IN_CLEAR
from barnabas_lag.evaluation.lags import NO_LEADER, PartitionReading
from harness.barnabas_server import prepare_barnabas
from harness.certificates import Authority
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.running_console import StartConsole
from harness.server_process import free_port

HERE, THERE = TopicPartition("here", 0), TopicPartition("there", 0)
LED = PartitionReading(leader=1, replicas=(1, 2), isr=(1,), oldest=0, end=9, stable=9)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    """Start two brokers; the second dies with the only replica of `gone`, and while one of `here` moves to it.

    A transaction hangs in `to`.
    """
    with barnabas_cluster(tmp_path_factory.mktemp("cluster"), brokers=2) as running:
        client = running.client()
        for topic, broker in (("here", 0), ("gone", 1), ("to", 0)):
            client.create_topic(topic, 1, assignment=[[broker]])
        _hang(running)
        running.kill(1)
        wait_for(lambda: running.leader("gone"), lambda leader: leader == -1)
        assert running.reassign("here", [1]) == 0
        # A client that Metadata sends to a broker that has died fails.
        wait_for(lambda: len(running.ask(0, MetadataRequest(topics=[]), 12).brokers), lambda brokers: brokers == 1)
        yield running


def _hang(cluster: BarnabasCluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay", "transaction.timeout.ms": 900_000}
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("to", b"undecided")
    assert producer.flush(PATIENCE_S) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["__transaction_state"])["__transaction_state"].result(PATIENCE_S)


def test_the_page_names_partitions_without_a_leader_and_moves(
    cluster: BarnabasCluster, start_console: StartConsole
) -> None:
    visitor = start_console(cluster.brokers[0].bootstrap).visitor()
    about = "replicas that may have all records are on brokers that are away: 1"
    why = f"The {about}. One of the eligible leader replicas (ELR) must come back: 1."
    rows = [{"topic": "gone", "partition": 0, "why": why}]
    found = wait_for(lambda: visitor.json("/"), lambda told: told["leaderless"] == rows)
    assert found["moving"] == [{"topic": "here", "partition": 0, "broker_id": 1, "removing": [0], "left": "no answer"}]
    page = visitor.get("/").text
    assert why in page
    assert (list(found["away"]), "away: broker 1 with" in page) == (["1"], True), found["away"]
    assert "Replicas that move" in page
    assert found["brokers"][0]["certificate"] is None
    rows = visitor.json("/transactions")["transactions"]
    assert [(each["topic"], each["state"], each["held_back"]) for each in rows] == [("to", "unknown", 1)]
    assert "none is known" in visitor.get("/transactions").text


def test_a_transaction_that_no_coordinator_knows_hangs_after_fifteen_minutes(cluster: BarnabasCluster) -> None:
    with closing(connected_client(cluster.brokers[0].bootstrap, 5.0, "test")) as client:
        held, now_ms = {TopicPartition("to", 0): 1}, int(time.time() * 1000)
        seen = read_cluster_once(Asking(client), 0.0)
        (young,) = transactions_of(client, seen, held, now_ms)
        (old,) = transactions_of(client, seen, held, now_ms + 16 * 60_000)
        with_a_silent_one = seen._replace(brokers=(*seen.brokers, broker(7)))
        (perhaps,) = transactions_of(client, with_a_silent_one, held, now_ms + 16 * 60_000)
        assert transactions_of(client, seen, {}, now_ms) == ()
    assert (young.state, old.state, perhaps.state, old.start_offset) == ("unknown", "hanging", "unknown", 0)


def snapshot(
    sizes: Mapping[tuple[int, str, int], int] | Unknown,
    moves: tuple[Reassignment, ...] | Unknown = (),
    futures: Mapping[tuple[int, str, int], int] | None = None,
) -> Snapshot:
    readings = {HERE: LED, THERE: LED._replace(leader=NO_LEADER)}
    return Snapshot(Seen(0.0, "c", (), readings, sizes, {}, (), moves, futures or {}))


def test_bytes_left_of_a_move_are_what_the_leader_has_more() -> None:
    sizes = {(1, "here", 0): 100, (2, "here", 0): 40}
    moves = (
        Reassignment(HERE, (2, 3), (1,)),
        Reassignment(THERE, (2,), ()),
        Reassignment(TopicPartition("x", 0), (), ()),
    )
    assert snapshot(sizes, moves, {(1, "here", 0): 70}).moving == (
        Moving("here", 0, 2, (1,), 60),
        Moving("here", 0, 3, (1,), Unknown.NO_ANSWER),
        Moving("there", 0, 2, (), Unknown.NO_LEADER),
        Moving("here", 0, 1, (), 30),
    )
    assert snapshot(Unknown.NO_RIGHT, moves[:1]).moving == (
        Moving("here", 0, 2, (1,), Unknown.NO_RIGHT),
        Moving("here", 0, 3, (1,), Unknown.NO_RIGHT),
    )
    assert snapshot(sizes, Unknown.NO_RIGHT).moving is Unknown.NO_RIGHT


def broker(number: int, error: str = "") -> Broker:
    log_dirs = (LogDir("/data", error, 1, 1, 1),)
    return Broker(number, "localhost:1", None, False, 0, 0, 0, log_dirs)


@pytest.mark.parametrize(
    ("isr", "eligible", "brokers", "words"),
    [
        ((1, 2), (), [broker(3)], "away: 1, 2. The replicas on brokers 3 are alive, but were not in sync"),
        ((1,), (), [broker(1, "KafkaStorageError")], "A log dir has failed on brokers with replicas that may have all"),
        ((1,), (), [broker(1)], "are alive: 1; the next leader is not elected yet."),
        ((), (), [broker(1)], "The replicas are on brokers that are away: 2, 3."),
        (
            (),
            (2,),
            [broker(1)],
            "away: 2. One of the eligible leader replicas (ELR) must come back: 2. The replicas on",
        ),
        ((), (), [broker(1), broker(2), broker(3)], "are alive: 1, 2, 3; no replica is known to have all records."),
    ],
)
def test_the_reason_of_a_missing_leader_names_where_the_records_are(
    isr: tuple[int, ...], eligible: tuple[int, ...], brokers: list[Broker], words: str
) -> None:
    found = LED._replace(leader=NO_LEADER, replicas=(1, 2, 3), isr=isr)
    assert words in why_no_leader(found, eligible, {each.broker_id: each for each in brokers})


def test_certificates_are_read_from_handshakes_once_an_hour(tmp_path: Path) -> None:
    authority, port, now_s = Authority(tmp_path), free_port(), [0.0]
    identity = authority.issue("broker", days=9)
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(identity.file)}
    process = prepare_barnabas(tmp_path, settings, listeners=(f"SSL://127.0.0.1:{port}",))
    file = tmp_path / "client.properties"
    trust = f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
    file.write_text(f"security.protocol=SSL\n{trust}")
    certificates = Certificates(CommandConfig(file), lambda: now_s[0], lambda: datetime.now(UTC))
    silent = f"127.0.0.1:{free_port()}"
    try:
        process.start()
        found = certificates.of([f"127.0.0.1:{port}", silent])
        assert (found[f"127.0.0.1:{port}"].days, found[f"127.0.0.1:{port}"].problem) == (8, "")
        assert "refused" in found[silent].problem
        process.stop()
        now_s[0] = RETRY_S + 1
        assert certificates.of([f"127.0.0.1:{port}"])[f"127.0.0.1:{port}"].days == 8
        now_s[0] = CHECK_S + 1
        assert "refused" in certificates.of([f"127.0.0.1:{port}"])[f"127.0.0.1:{port}"].problem
    finally:
        process.close()
    assert Certificates(IN_CLEAR, lambda: 0.0, lambda: datetime.now(UTC)).of([silent]) == {}
