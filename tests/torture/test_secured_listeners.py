"""Listeners and certificates change under traffic: no record is lost, and no acknowledgement takes long."""

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from harness.certificates import Authority
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.deadline import wait_for
from harness.mutual_tls import add_listener_of_brokers, mutual_tls
from harness.server_process import free_port
from harness.soak import size, took
from torture.secured_traffic import PARTITIONS, TOPIC, Traffic
from torture.shown_certificates import shown_by

GAP_S_MAX = 10.0
ROTATIONS = size(1, 200)
PLAIN, SECURE = "PLAIN", "SECURE"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="broker" password="geheim" user_broker="geheim" user_alice="geheim";'


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


class Rolled:
    """Brokers with two ports for clients and peers each, and one for the test, which does not change."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self._authority = authority
        properties = {
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{PLAIN}:PLAINTEXT,{SECURE}:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.issue("broker").file),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.file),
            "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.secure.plain.sasl.jaas.config": JAAS,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "min.insync.replicas": "2",
        }
        self.cluster = prepare_cluster(folder, properties=properties)
        self._commands = {number: [*broker.command] for number, broker in self.cluster.brokers.items()}
        self._ports = {number: {PLAIN: free_port(), SECURE: free_port()} for number in self.cluster.brokers}

    def choose(self, number: int, names: list[str], between_brokers: str) -> None:
        """Give a stopped broker these listeners for its next start."""
        broker = self.cluster.brokers[number]
        chosen = [f"PLAINTEXT://{broker.bootstrap}"]
        chosen += [f"{name}://localhost:{self._ports[number][name]}" for name in names]
        settings = {"listeners": ",".join(chosen), "inter.broker.listener.name": between_brokers}
        overrides = [word for name, value in settings.items() for word in ("--override", f"{name}={value}")]
        broker.command = [*self._commands[number], *overrides]

    def roll(self, names: list[str], between_brokers: str) -> None:
        """Restart one broker after the other with these listeners."""
        for number in self.cluster.brokers:
            self.cluster.stop(number)
            self.choose(number, names, between_brokers)
            self.cluster.start(number)
            self.cluster.wait_until_full()

    def move(self, traffic: Traffic, name: str) -> None:
        """Let clients use this listener."""
        bootstrap = ",".join(f"localhost:{ports[name]}" for ports in self._ports.values())
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "geheim"}
        secured = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(self._authority.file), **login}
        traffic.use(bootstrap, secured if name == SECURE else {})


@pytest.mark.soak(only=True)
@pytest.mark.timeout(1200)
def test_rolls_from_plaintext_to_sasl_ssl_and_back_lose_no_record(tmp_path: Path, authority: Authority) -> None:
    rolled = Rolled(tmp_path / "cluster", authority)
    with closing(rolled.cluster) as cluster:
        for number in cluster.brokers:
            rolled.choose(number, [PLAIN], PLAIN)
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, 3)
        traffic = Traffic(cluster)
        rolled.move(traffic, PLAIN)
        for before, after in ((PLAIN, SECURE), (SECURE, PLAIN)):
            rolled.roll([PLAIN, SECURE], before)
            rolled.roll([PLAIN, SECURE], after)
            rolled.move(traffic, after)
            rolled.roll([after], after)
            traffic.await_answers()
        assert traffic.problems() == []
        assert "Traceback" not in cluster.logs_text()
    print(f"{len(traffic.history.acknowledged)} records acknowledged through 18 restarts")
    took("the longest time without an acknowledgement", traffic.longest_gap_s, GAP_S_MAX)


@pytest.fixture
def with_tls(tmp_path: Path, authority: Authority) -> Iterator[tuple[BarnabasCluster, list[int]]]:
    """Three brokers with mutual TLS between them, and the ports with TLS for clients."""
    running = prepare_cluster(tmp_path / "cluster", properties=mutual_tls(authority.issue("broker"), authority))
    ports = [free_port() for _ in running.brokers]
    for broker, port in zip(running.brokers.values(), ports, strict=True):
        add_listener_of_brokers(broker, f"SECURE://localhost:{port}")
    with closing(running):
        running.start()
        running.create_topic(TOPIC, PARTITIONS, 3)
        yield running, ports


def await_shown(authority: Authority, ports: list[int], certificate: bytes) -> None:
    """Return once every broker shows this certificate."""
    wait_for(lambda: {shown_by(authority.file, port) for port in ports}, lambda found: found == {certificate})


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_certificate_rotations_under_traffic_lose_no_record(
    with_tls: tuple[BarnabasCluster, list[int]], authority: Authority
) -> None:
    cluster, ports = with_tls
    traffic = Traffic(cluster)
    bootstrap = ",".join(f"localhost:{port}" for port in ports)
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(authority.file)}
    traffic.use(bootstrap, settings)
    for _ in range(ROTATIONS):
        renewed = authority.issue("broker", "renewed")
        renewed.file.replace(renewed.file.with_name("broker.pem"))
        await_shown(authority, ports, ssl.PEM_cert_to_DER_cert(renewed.certificate))
        traffic.await_answers()
    traffic.use(bootstrap, settings)
    traffic.await_answers()
    assert traffic.problems() == []
    assert not [line for line in cluster.logs_text().splitlines() if " ERROR " in line or "Traceback" in line]
    took("the longest time without an acknowledgement", traffic.longest_gap_s, GAP_S_MAX)
