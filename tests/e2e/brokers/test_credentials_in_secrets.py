"""Two brokers whose SCRAM credentials are in Secrets of a real Kubernetes API."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, TopicPartition

from barnabas_core.conventions import credential_secrets
from e2e.state_documents import define_state_documents, environment_of_broker
from harness.cluster import BarnabasCluster, prepare_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import free_port
from local_kubernetes.control_plane import ControlPlane

NAME = "demo-with-passwords"
KIND = ScramMechanism.SCRAM_SHA_512
PASSWORD = "pencil"


class Secured:
    """Two brokers with a SASL listener beside the open one."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        properties = {
            "metadata.store": f"kubernetes://default/{NAME}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        }
        self.brokers: BarnabasCluster = prepare_cluster(folder, brokers=2, properties=properties)
        self.ports = {number: free_port() for number in self.brokers.brokers}
        for number, broker in self.brokers.brokers.items():
            listeners = f"PLAINTEXT://127.0.0.1:{broker.port},SECURE://127.0.0.1:{self.ports[number]}"
            broker.command += ["--override", f"listeners={listeners}"]
            broker.environment |= environment_of_broker(plane, number)

    def change(self, alteration: UserScramCredentialAlteration) -> None:
        """Alter a credential through the open listener of the first broker."""
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.brokers.brokers[0].port}"})
        for done in client.alter_user_scram_credentials([alteration]).values():
            done.result(timeout=PATIENCE_S)


@pytest.fixture
def secured(tmp_path: Path, api_server: ControlPlane) -> Iterator[Secured]:
    define_state_documents(api_server)
    for name in credential_secrets(NAME):
        api_server.kubectl("create", "secret", "generic", name)
    made = Secured(tmp_path, api_server)
    with closing(made.brokers):
        made.brokers.start()
        yield made


def reader_of_both(secured: Secured) -> KafkaConsumer:
    """Return a consumer of alice that has read from each broker."""
    secured.brokers.create_topic("flights", 2, 1)
    producer = Producer({"bootstrap.servers": secured.brokers.bootstrap})
    for partition in range(2):
        producer.produce("flights", b"one", partition=partition)
    assert producer.flush(PATIENCE_S) == 0
    consumer = KafkaConsumer(
        bootstrap_servers=f"127.0.0.1:{secured.ports[1]}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
        bootstrap_timeout_ms=30_000,
        auto_offset_reset="earliest",
    )
    both = [TopicPartition("flights", 0), TopicPartition("flights", 1)]
    consumer.assign(both)
    seen: set[int] = set()
    while seen != {0, 1}:
        seen |= {each.partition for each in consumer.poll(1000)}
    return consumer


def test_deleting_a_user_closes_its_connections_to_each_broker(secured: Secured, api_server: ControlPlane) -> None:
    secured.change(UserScramCredentialUpsertion("alice", ScramCredentialInfo(KIND, 4096), PASSWORD.encode()))
    with closing(reader_of_both(secured)):
        documents = api_server.kubectl("get", "sdoc", "-l", f"barnabas.dev/cluster={NAME}", "-o", "yaml")
        assert "flights" in documents
        assert "alice" not in documents
        secured.change(UserScramCredentialDeletion("alice", KIND))
        closed = "the credential of 'alice' for SCRAM-SHA-512 has changed"
        for broker in secured.brokers.brokers.values():
            wait_for(broker.log_text, lambda text: closed in text)
