"""The bench's loads on a real broker: commits, reads, and a broker from the sources of an earlier commit."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.clients.commits import commit_until
from bench.clients.job import NotRun, PartMissing
from bench.clients.logins import handshakes, logins
from bench.clusters import BROKERS
from bench.peers import SOURCES, peer_kinds, sources_of
from bench.raw_requests import wait_for_committed_offset
from bench.scenarios.cold import Reader
from bench.secured_broker import SECURED_KINDS, WayIn, client_settings
from bench.secured_cluster import SECURED_CLUSTER_KINDS
from bench.topics import create, topic
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import HERE, ServerFailed, ServerProcess

RECORD = bytes(10_000)
RECORDS = 200
ESTABLISHED = "01"
"""The state of an established connection in /proc/net/tcp."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServerProcess]:
    server = peer_kinds(tmp_path)["barnabas"].prepare(tmp_path / "broker")
    server.start()
    try:
        yield server
    finally:
        server.close()


def test_tls_connections_and_scram_logins_are_counted(tmp_path: Path) -> None:
    secured = SECURED_KINDS["barnabas"](tmp_path)
    secured.start()
    try:
        assert handshakes(secured.bootstrap(WayIn.SSL), secured.authority, 1) > 0
        assert logins(HERE.host, secured.ports[WayIn.SASL_SSL], secured.authority, 0.1) > 0
    finally:
        secured.close()


def connected_ports() -> set[int]:
    """Return the ports at the other ends of all connections of this machine."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:])
    return {int(row[2].rpartition(":")[2], 16) for row in rows if row[3] == ESTABLISHED}


def test_a_secured_cluster_uses_tls_between_brokers_and_for_clients(tmp_path: Path) -> None:
    secured = SECURED_CLUSTER_KINDS["barnabas"](tmp_path)
    with closing(secured):
        secured.start()
        with topic(secured.cluster.bootstrap, "bench-0", 6, BROKERS):
            ports = {int(each.rpartition(":")[2]) for each in secured.bootstrap.split(",")}
            wait_for(lambda: connected_ports() >= ports)
            settings = client_settings(WayIn.SSL, secured.authority)["librdkafka"]
            producer = Producer({**settings, "bootstrap.servers": secured.bootstrap, "acks": "all"})
            producer.produce("bench-0", RECORD)
            assert producer.flush(PATIENCE_S) == 0


def test_a_group_commits_until_there_are_enough_and_its_offset_is_found(broker: ServerProcess) -> None:
    create(broker.bootstrap, ["read"], 3)
    looks = iter((False, False, True))
    commit_until(broker.port, "readers", "read", 3, lambda: next(looks), seconds_max=PATIENCE_S)
    assert wait_for_committed_offset(broker.port, "readers", "read", 10) is not None


def test_commits_that_take_too_long_are_given_up(broker: ServerProcess) -> None:
    create(broker.bootstrap, ["read"], 3)
    with pytest.raises(NotRun, match="0 s were too short for the commits"):
        commit_until(broker.port, "readers", "read", 3, lambda: False, seconds_max=0)


def test_a_refused_commit_is_not_counted(broker: ServerProcess) -> None:
    with pytest.raises(NotRun, match="no coordinator took a commit"):
        commit_until(broker.port, "readers", "nowhere", 3, lambda: True, seconds_max=60, coordinator_seconds_max=0.5)


def test_a_reader_that_is_stopped_early_reports_the_rate_until_then(broker: ServerProcess) -> None:
    create(broker.bootstrap, ["cold"], 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(RECORDS):
        producer.produce("cold", RECORD)
    assert producer.flush(PATIENCE_S) == 0
    began_s = time.monotonic()
    with Reader(broker.bootstrap) as reader:
        goes_on = reader.goes_on_until(RECORDS * len(RECORD), 60)
        while goes_on():
            time.sleep(0.01)
        assert RECORDS * len(RECORD) / (time.monotonic() - began_s) <= reader.bytes_per_s()
        assert not reader.goes_on_until(10 * RECORDS * len(RECORD), 0)()


def test_the_broker_of_an_earlier_commit_runs_that_commits_sources(tmp_path: Path) -> None:
    package = tmp_path / "sources" / SOURCES[0] / "barnabas"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("raise SystemExit(7)")
    server = peer_kinds(tmp_path, tmp_path / "sources")["before"].prepare(tmp_path / "broker")
    with pytest.raises(ServerFailed, match="ended with 7"):
        server.start()


def test_a_commit_without_sources_is_named(tmp_path: Path) -> None:
    with pytest.raises(PartMissing, match="no sources of nowhere"):
        sources_of("nowhere", tmp_path / "sources")
