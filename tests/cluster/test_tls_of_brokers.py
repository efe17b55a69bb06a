"""Three brokers with TLS for clients, and mutual TLS among themselves."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

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


def test_records_are_replicated_and_consumed_over_tls(cluster: BarnabasCluster, authority: Authority) -> None:
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


def test_a_client_that_trusts_another_authority_cannot_connect(
    cluster: BarnabasCluster, authority: Authority, tmp_path: Path
) -> None:
    errors: list[KafkaError] = []
    other = Authority(tmp_path, "other")
    producer = Producer({**settings(authority), "ssl.ca.location": str(other.file), "error_cb": errors.append})
    # A connection may time out first on a busy machine; librdkafka then tries again.
    wait_for(lambda: producer.poll(0.1) >= 0 and KafkaError._SSL in {error.code() for error in errors})


def serial_number(authority: Authority, port: int) -> str:
    """Return the serial number of the certificate that a broker shows."""
    context = ssl.create_default_context(cadata=authority.certificate)
    with (
        socket.create_connection(("localhost", port)) as connected,
        context.wrap_socket(connected, server_hostname="localhost") as tls,
    ):
        return str((tls.getpeercert() or {})["serialNumber"])


def admin_of(authority: Authority) -> AdminClient:
    return AdminClient({name: value for name, value in settings(authority).items() if name.startswith(("b", "s"))})


def alter(admin: AdminClient, number: int, **values: str) -> None:
    """Set these settings of the listener SECURE of a broker; `_` stands for `.`."""
    entries = [
        ConfigEntry(f"listener.name.secure.{name.replace('_', '.')}", text, incremental_operation=AlterConfigOpType.SET)
        for name, text in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.BROKER, str(number), incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def test_a_broker_refuses_unusable_certificates_and_loads_renewed_ones(
    cluster: BarnabasCluster, authority: Authority
) -> None:
    admin, number = admin_of(authority), min(cluster.brokers)
    with pytest.raises(KafkaException, match=r"listener.name.secure.ssl.keystore.location=.*has the subject"):
        alter(admin, number, ssl_keystore_location=str(authority.issue("stranger").file))
    name, file = "listener.name.secure.ssl.keystore.location", "/no/such.pem"
    resource = ConfigResource(ConfigResource.Type.BROKER, str(number), set_config={name: file})
    with pytest.raises(KafkaException, match=rf"{name}={file}"):
        admin.alter_configs([resource])[resource].result(PATIENCE_S)
    before = serial_number(authority, secure_ports[0])
    alter(admin, number, ssl_keystore_location=str(authority.issue("broker", "renewed").file))
    wait_for(lambda: serial_number(authority, secure_ports[0]) != before)


def test_a_key_password_set_on_a_running_broker_is_never_stored_in_clear(
    cluster: BarnabasCluster, authority: Authority
) -> None:
    identity, password = authority.issue("broker", "locked"), "planted-password"
    key = load_pem_private_key(identity.key.encode(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    identity.file.write_text(locked.decode() + identity.certificate)
    serial = x509.load_pem_x509_certificate(identity.certificate.encode()).serial_number
    admin, number, port = admin_of(authority), max(cluster.brokers), secure_ports[-1]

    def is_shown() -> bool:
        return int(serial_number(authority, port), 16) == serial

    alter(admin, number, ssl_keystore_location=str(identity.file), ssl_key_password=password)
    wait_for(is_shown)
    cluster.restart(number)
    wait_for(is_shown)
    resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
    admin = admin_of(authority)  # The old client has dropped the broker if it asked for metadata while that was away.
    described = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    assert described["listener.name.secure.ssl.key.password"].value is None
    files = [file for file in cluster.folder.rglob("*") if file.is_file()]
    assert {"metadata.sqlite", "server.log"} <= {file.name for file in files}
    assert not [file for file in files if password.encode() in file.read_bytes()]
