"""Clients authenticate by each SASL mechanism and by certificates; wrong credentials are refused."""

import re
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from kafka import KafkaConsumer

from drivers.kafka_tools import KafkaTools
from drivers.logins import (
    REFUSALS,
    aio_kafka,
    java_config,
    kafka_python,
    kcat,
    kcat_with_an_unsigned_token,
    librdkafka,
    remote,
)
from drivers.remote import RemoteClient
from drivers.secured_broker import CERTIFICATE, PASSWORD, WAYS, Login, SecuredBroker, set_password
from harness.deadline import PATIENCE_S, wait_for
from harness.require import missing

REMOTE = ("java", "franz-go", "kafkajs")
CLIENTS = ("librdkafka", "kafka-python", "aiokafka", *REMOTE)
Driver = Callable[[str], RemoteClient]


def log_in(name: str, login: Login, driver: Driver, wait_s: float = PATIENCE_S) -> None:
    """Write a record as that client, or raise one of REFUSALS."""
    here: dict[str, Callable[[Login], None]] = {
        "librdkafka": librdkafka,
        "aiokafka": aio_kafka,
        "kafka-python": partial(kafka_python, wait_s=wait_s),
    }
    (remote(driver(name)) if name in REMOTE else here[name])(login)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_authenticates_only_with_right_credentials(
    name: str, way: str, secured: SecuredBroker, secured_driver: Driver
) -> None:
    log_in(name, secured.login(way), secured_driver)
    with pytest.raises(REFUSALS):
        log_in(name, secured.login(way, is_right=False), secured_driver, wait_s=1)


@pytest.fixture
def installed_kcat() -> None:
    if shutil.which("kcat") is None:
        missing("kcat is not on the machine")


# librdkafka authenticates by SCRAM since 2.6.1, as with Kafka 4: older ones send their own nonce twice.
@pytest.mark.parametrize("way", ["PLAIN", CERTIFICATE])
@pytest.mark.usefixtures("installed_kcat")
def test_kcat_authenticates_with_right_credentials(way: str, secured: SecuredBroker) -> None:
    kcat(secured.login(way))


@pytest.mark.usefixtures("installed_kcat")
def test_an_unsigned_token_is_refused(secured: SecuredBroker) -> None:
    with pytest.raises(REFUSALS):
        kcat_with_an_unsigned_token(secured.login("OAUTHBEARER"))
    assert "fit the token's algorithm 'none'" in secured.server.log_text()


def test_a_client_without_a_certificate_is_refused_where_one_is_required(secured: SecuredBroker) -> None:
    with pytest.raises(REFUSALS):
        librdkafka(secured.login(CERTIFICATE)._replace(certificate=None))


def properties(file: Path, login: Login) -> Path:
    """Write a file for `--command-config`."""
    file.write_text("".join(f"{name}={value}\n" for name, value in java_config(login).items()))
    return file


def test_kafkas_console_tools_write_and_read_with_credentials(
    secured: SecuredBroker, secured_driver: Driver, tmp_path: Path
) -> None:
    settings = properties(tmp_path / "client.properties", secured.login_in_clear(PASSWORD))
    wrong = properties(tmp_path / "wrong.properties", secured.login_in_clear("wrong"))
    tools = KafkaTools(secured_driver("java"), secured.bootstrap("CLEAR"))
    server = "--bootstrap-server localhost:9092"
    tools.check(f"kafka-topics.sh {server} --command-config {settings} --create --topic flights")
    tools.check(f"kafka-console-producer.sh {server} --command-config {settings} --topic flights", "one\n")
    read = f"kafka-console-consumer.sh {server} --command-config {settings} --topic flights --from-beginning"
    assert tools.run(f"{read} --max-messages 1").output.strip() == "one"
    refused = tools.run(f"kafka-topics.sh {server} --command-config {wrong} --list")
    assert "invalid credentials with SASL mechanism PLAIN" in refused.text


def verifiers(folder: Path) -> list[bytes]:
    """Return the stored keys and server keys of all users, as the file of secrets has them."""
    with sqlite3.connect(folder / "metadata.secrets.sqlite") as connection:
        rows = connection.execute("SELECT value FROM documents WHERE key LIKE 'scram/%'").fetchall()
    return [key for (value,) in rows for key in re.findall(rb"_key=([^,]+)", value)]


def test_scram_verifiers_are_only_in_their_own_file_that_others_cannot_read(secured: SecuredBroker) -> None:
    assert all(file.stat().st_mode & 0o077 == 0 for file in secured.folder.glob("metadata.secrets.sqlite*"))
    assert len(verifiers(secured.folder)) >= 8
    for file in (*secured.folder.glob("metadata.sqlite*"), secured.folder / "server.log"):
        content = file.read_bytes()
        assert PASSWORD.encode() not in content
        assert not [key for key in verifiers(secured.folder) if key in content]


def test_kafka_configs_sets_shows_and_deletes_a_scram_credential(
    secured: SecuredBroker, secured_driver: Driver
) -> None:
    tools = KafkaTools(secured_driver("java"), secured.server.bootstrap)
    user = "kafka-configs.sh --bootstrap-server localhost:9092 --entity-type users --entity-name dave"
    tools.check(f"{user} --alter --add-config SCRAM-SHA-512=[iterations=8192,password=geheim]")
    assert "SCRAM-SHA-512=iterations=8192" in tools.check(f"{user} --describe")
    tools.check(f"{user} --alter --delete-config SCRAM-SHA-512")
    assert "SCRAM" not in tools.check(f"{user} --describe")


def test_a_changed_password_closes_the_connections_of_its_user(secured: SecuredBroker) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=secured.bootstrap("CLEAR"),
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
