"""Clients that authenticate by SASL, each with a right password and with a wrong one."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import KafkaError

from drivers.broker_under_test import PROPERTIES
from drivers.builds import java_driver
from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from harness.barnabas_server import prepare_barnabas
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess, free_port
from harness.tokens import AUDIENCE, ISSUER, Issuer

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
TOKENS = "listener.name.secure.oauthbearer.sasl.oauthbearer."
OURS, STRANGER = Issuer(), Issuer()
PASSWORD = "pencil, and =more"


def set_password(bootstrap: str, password: str, *users: str) -> None:
    """By both hashes, through the listener that is open."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        asked: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(user, ScramCredentialInfo(kind, 4096), password.encode()) for user in users
        ]
        for done in client.alter_user_scram_credentials(asked).values():
            done.result(timeout=PATIENCE_S)


class Secured:
    """A broker with a listener of SASL beside the open one."""

    def __init__(self, server: ServerProcess, folder: Path, port: int) -> None:
        self.server = server
        self.folder = folder
        self.bootstrap = f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, port = tmp_path_factory.mktemp("sasl"), free_port()
    settings = {
        **PROPERTIES,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{TOKENS}jwks.endpoint.url": f"file://{folder}/keys.json",
        f"{TOKENS}expected.audience": AUDIENCE,
        f"{TOKENS}expected.issuer": ISSUER,
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} required user_alice="{PASSWORD}";',
    }
    (folder / "keys.json").write_bytes(OURS.key_set())
    server = prepare_barnabas(folder, settings)
    config = folder / "server.properties"
    text = config.read_text()
    config.write_text(text.replace("listeners=PLAINTEXT", f"listeners=SECURE://127.0.0.1:{port},PLAINTEXT", 1))
    server.start()
    try:
        set_password(server.bootstrap, PASSWORD, "alice", "carol")
        yield Secured(server, folder, port)
        assert PASSWORD not in server.log_text()
        assert "Traceback" not in server.log_text()
    finally:
        server.close()


def wait_s(password: str) -> int:
    """How long a client tries: one with a wrong password would never end."""
    return int(PATIENCE_S) if password == PASSWORD else 1


def librdkafka(bootstrap: str, mechanism: str, password: str) -> bool:
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }
    try:
        return bool(AdminClient(settings, logger=_Silent()).list_topics(timeout=wait_s(password)).brokers)
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
            bootstrap_timeout_ms=wait_s(password) * 1000,
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
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_client_comes_in_with_the_right_password_only(secured: Secured, client: str, mechanism: str) -> None:
    assert CLIENTS[client](secured.bootstrap, mechanism, PASSWORD)
    assert not CLIENTS[client](secured.bootstrap, mechanism, "wrong")


def librdkafka_by_token(bootstrap: str, issuer: Issuer) -> bool:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (issuer.token("alice"), time.time() + 60),
    }
    client = AdminClient(settings, logger=_Silent())
    client.poll(0)
    try:
        return bool(client.list_topics(timeout=30 if issuer is OURS else 1).brokers)
    except KafkaException:
        return False


def test_librdkafka_comes_in_with_a_token_of_the_right_issuer_only(secured: Secured) -> None:
    assert librdkafka_by_token(secured.bootstrap, OURS)
    assert not librdkafka_by_token(secured.bootstrap, STRANGER)


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


def verifiers(folder: Path) -> list[bytes]:
    """The stored and the server keys of all users, as they stand in the file of secrets."""
    with sqlite3.connect(folder / "metadata.secrets.sqlite") as connection:
        rows = connection.execute("SELECT value FROM documents WHERE key LIKE 'scram/%'").fetchall()
    return [key for (value,) in rows for key in re.findall(rb"_key=([^,]+)", value)]


def test_verifiers_are_in_a_file_of_their_own_that_others_cannot_read(secured: Secured) -> None:
    assert all(file.stat().st_mode & 0o077 == 0 for file in secured.folder.glob("metadata.secrets.sqlite*"))
    assert len(verifiers(secured.folder)) >= 8
    for file in (*secured.folder.glob("metadata.sqlite*"), secured.folder / "server.log"):
        content = file.read_bytes()
        assert PASSWORD.encode() not in content
        assert not [key for key in verifiers(secured.folder) if key in content]


def test_kafka_configs_sets_shows_and_deletes_a_users_credential(secured: Secured, tmp_path: Path) -> None:
    java = RemoteClient("java", java_driver(secured.server.bootstrap), tmp_path / "java.log")
    try:
        tools = KafkaTools(java, secured.server.bootstrap)
        user = "kafka-configs.sh --bootstrap-server localhost:9092 --entity-type users --entity-name dave"
        tools.check(f"{user} --alter --add-config SCRAM-SHA-512=[iterations=8192,password=geheim]")
        assert "SCRAM-SHA-512=iterations=8192" in tools.check(f"{user} --describe")
        tools.check(f"{user} --alter --delete-config SCRAM-SHA-512")
        assert "SCRAM" not in tools.check(f"{user} --describe")
    finally:
        java.close()


def test_a_changed_password_ends_the_connections_of_its_user(secured: Secured) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=secured.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="carol",
        sasl_plain_password=PASSWORD,
        bootstrap_timeout_ms=int(PATIENCE_S * 1000),
    )
    try:
        assert consumer.topics() is not None
        set_password(secured.server.bootstrap, "another", "carol")
        wait_for(
            secured.server.log_text, lambda text: "the credential of 'carol' for SCRAM-SHA-256 has changed" in text
        )
    finally:
        consumer.close()
