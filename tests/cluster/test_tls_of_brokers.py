"""Three brokers with TLS, to clients and among themselves with certificates of both sides."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from harness.certificates import Authority
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.mutual_tls import add_listener_of_brokers, mutual_tls
from harness.server_process import free_port

RECORDS = 200
secure_ports: list[int] = []


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def cluster(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    identity = authority.issue("broker")
    properties = {**mutual_tls(identity, authority), "min.insync.replicas": "3"}
    running = prepare_cluster(tmp_path_factory.mktemp("cluster"), properties=properties)
    for broker in running.brokers.values():
        secure_ports.append(free_port())
        add_listener_of_brokers(broker, f"SECURE://localhost:{secure_ports[-1]}")
    try:
        running.start()
        running.create_topic("t", 3, 3)
        yield running
    finally:
        running.close()


def settings(authority: Authority) -> dict[str, str | int]:
    return {
        "bootstrap.servers": ",".join(f"localhost:{port}" for port in secure_ports),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
        "acks": "all",
        "message.timeout.ms": 600_000,
    }


def test_records_are_replicated_over_tls_and_read_by_it(cluster: BarnabasCluster, authority: Authority) -> None:
    producer = Producer(settings(authority))
    for number in range(RECORDS):
        producer.produce("t", str(number).encode() * 1_000, partition=number % 3)
    assert producer.flush(PATIENCE_S) == 0
    cluster.wait_until_full("t")
    reading = {
        **{name: value for name, value in settings(authority).items() if name.startswith(("boot", "sec", "ssl"))},
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    found: set[bytes] = set()
    with closing(Consumer(reading)) as consumer:
        consumer.subscribe(["t"])

        def read() -> bool:
            found.update(each.value() or b"" for each in consumer.consume(500, timeout=0.5) if each.error() is None)
            return len(found) == RECORDS

        wait_for(read)


def test_a_client_that_trusts_others_connects_to_nobody(
    cluster: BarnabasCluster, authority: Authority, tmp_path: Path
) -> None:
    errors: list[KafkaError] = []
    other = Authority(tmp_path, "other")
    producer = Producer({**settings(authority), "ssl.ca.location": str(other.file), "error_cb": errors.append})
    # A connection that times out on a busy machine is another error, and librdkafka tries again.
    wait_for(lambda: producer.poll(0.1) >= 0 and KafkaError._SSL in {error.code() for error in errors})


def serial_number(authority: Authority, port: int) -> str:
    """Return the serial number of the certificate that a broker shows."""
    context = ssl.create_default_context(cadata=authority.certificate)
    with (
        socket.create_connection(("localhost", port)) as connected,
        context.wrap_socket(connected, server_hostname="localhost") as tls,
    ):
        return str((tls.getpeercert() or {})["serialNumber"])


def test_a_renewed_certificate_is_shown_without_a_restart(cluster: BarnabasCluster, authority: Authority) -> None:
    before = {serial_number(authority, port) for port in secure_ports}
    authority.issue("broker")
    wait_for(lambda: before.isdisjoint({serial_number(authority, port) for port in secure_ports}))
    producer = Producer(settings(authority))
    producer.produce("t", b"x")
    assert producer.flush(PATIENCE_S) == 0


def test_certificates_that_a_broker_cannot_use_are_refused_by_it(
    cluster: BarnabasCluster, authority: Authority
) -> None:
    admin = AdminClient({name: value for name, value in settings(authority).items() if name.startswith(("b", "s"))})
    number = min(cluster.brokers)

    def alter(location: Path) -> None:
        name = "listener.name.secure.ssl.keystore.location"
        entry = ConfigEntry(name, str(location), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    with pytest.raises(KafkaException, match=r"listener.name.secure.ssl.keystore.location=.*has the subject"):
        alter(authority.issue("stranger").file)
    before = serial_number(authority, secure_ports[0])
    alter(authority.issue("broker", "renewed").file)
    wait_for(lambda: serial_number(authority, secure_ports[0]) != before)
