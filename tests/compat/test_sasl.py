"""Clients that authenticate by SASL, each with a right password and with a wrong one."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from drivers.broker_under_test import PROPERTIES
from drivers.builds import java_driver
from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from harness.barnabas_server import prepare_barnabas
from harness.server_process import ServerProcess, free_port

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = "pencil, and =more"


class Secured:
    """A broker with a listener of SASL beside the open one."""

    def __init__(self, server: ServerProcess, port: int) -> None:
        self.server = server
        self.bootstrap = f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, port = tmp_path_factory.mktemp("sasl"), free_port()
    settings = {
        **PROPERTIES,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
    }
    server = prepare_barnabas(folder, settings)
    config = folder / "server.properties"
    text = config.read_text()
    config.write_text(text.replace("listeners=PLAINTEXT", f"listeners=SECURE://127.0.0.1:{port},PLAINTEXT", 1))
    server.start()
    try:
        yield Secured(server, port)
        assert PASSWORD not in server.log_text()
        assert "Traceback" not in server.log_text()
    finally:
        server.close()


def librdkafka(bootstrap: str, mechanism: str, password: str) -> bool:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }
    try:
        return bool(AdminClient(settings, logger=_Silent()).list_topics(timeout=5).brokers)
    except KafkaException:
        return False


class _Silent:
    def log(self, *line: object) -> None:
        """Say nothing: a refusal is what a test wants."""


def kafka_python(bootstrap: str, mechanism: str, password: str) -> bool:
    try:
        client = KafkaAdminClient(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            bootstrap_timeout_ms=3000,
        )
    except KafkaError:
        return False
    client.close()
    return True


def aio_kafka(bootstrap: str, mechanism: str, password: str) -> bool:
    async def log_in() -> bool:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )
        try:
            await producer.start()
        except aiokafka.errors.KafkaError:
            return False
        finally:
            await producer.stop()
        return True

    return asyncio.run(log_in())


CLIENTS: dict[str, Callable[[str, str, str], bool]] = {
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aio_kafka,
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("mechanism", ["PLAIN"])
def test_a_client_comes_in_with_the_right_password_only(secured: Secured, client: str, mechanism: str) -> None:
    assert CLIENTS[client](secured.bootstrap, mechanism, PASSWORD)
    assert not CLIENTS[client](secured.bootstrap, mechanism, "wrong")


def test_kafkas_console_tools_write_and_read(secured: Secured, tmp_path: Path) -> None:
    (settings := tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="alice" password="{PASSWORD}";\n'
    )
    (wrong := tmp_path / "wrong.properties").write_text(settings.read_text().replace(PASSWORD, "wrong"))
    java = RemoteClient("java", java_driver(secured.bootstrap), tmp_path / "java.log")
    try:
        tools = KafkaTools(java, secured.bootstrap)
        server = "--bootstrap-server localhost:9092"
        tools.check(f"kafka-topics.sh {server} --command-config {settings} --create --topic flights")
        tools.check(f"kafka-console-producer.sh {server} --command-config {settings} --topic flights", "one\n")
        read = f"kafka-console-consumer.sh {server} --command-config {settings} --topic flights --from-beginning"
        assert tools.run(f"{read} --max-messages 1").output.strip() == "one"
        refused = tools.run(f"kafka-topics.sh {server} --command-config {wrong} --list")
        assert "invalid credentials with SASL mechanism PLAIN" in refused.text
    finally:
        java.close()
