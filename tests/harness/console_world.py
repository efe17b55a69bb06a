"""A broker with users, and consoles that look at it."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    KafkaAdminClient,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from harness.barnabas_server import prepare_barnabas
from harness.running_console import RunningConsole, Secured, StartConsole, Visitor, logged_in
from harness.server_process import free_port

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
MARKUP = "<script>alert(1)</script>"
BROKEN = b"\xff\x00\x07 broken"


@pytest.fixture(scope="session")
def console_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """Start a broker where `admin` may do everything, and `carol` may describe and read `flights` alone."""
    port = free_port()
    passwords = 'user_admin="admin-secret" user_carol="carol-secret"'
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} required {passwords};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    folder = tmp_path_factory.mktemp("console_broker")
    process = prepare_barnabas(folder, settings, listeners=(f"SASL_PLAINTEXT://127.0.0.1:{port}",))
    try:
        process.start()
        _fill(Secured(process, f"127.0.0.1:{port}"))
        yield Secured(process, f"127.0.0.1:{port}")
        process.stop()
    finally:
        process.close()


def _fill(broker: Secured) -> None:
    client = broker.client()
    client.create_topic("flights", 3)
    client.create_topic("other", 1)
    client.create_topic("written", 1)
    for number in range(3):
        client.write("flights", [f'{{"flight": {number}, "card": "4111"}}'.encode(), MARKUP.encode(), BROKEN], number)
    client.write("other", [b"one"], 0)
    client.commit("billing", *(TopicPartition("flights", number, 1) for number in range(3)))
    with closing(KafkaAdminClient(bootstrap_servers=broker.open)) as admin:
        flights = ResourcePattern(ResourceType.TOPIC, "flights")
        reads = [
            ACL("User:carol", "*", operation, ACLPermissionType.ALLOW, flights)
            for operation in (ACLOperation.READ, ACLOperation.DESCRIBE)
        ]
        admin.create_acls(reads)
        password = UserScramCredentialUpsertion("dave", ScramMechanism.SCRAM_SHA_512, "dave-secret")
        admin.alter_user_scram_credentials([password])


@pytest.fixture(scope="session")
def start_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartConsole]:
    """Return a function that starts a console; in the end each one must stop cleanly after SIGTERM."""
    running: list[RunningConsole] = []

    def started(bootstrap: str, *options: str, properties: str = "") -> RunningConsole:
        folder: Path = tmp_path_factory.mktemp("console")
        (folder / "client.properties").write_text(properties)
        config = ["--command-config", str(folder / "client.properties")] if properties else []
        running.append(RunningConsole(bootstrap, folder, *config, *options))
        running[-1].process.start()
        return running[-1]

    try:
        yield started
        for each in running:
            assert each.process.stop() == 0, each.log()
            assert "Traceback" not in each.log(), each.log()
    finally:
        for each in running:
            each.process.close()


@pytest.fixture(scope="session")
def console(console_broker: Secured, start_console: StartConsole) -> RunningConsole:
    """Return a console at which visitors log in, and may act."""
    return start_console(
        console_broker.bootstrap, "--write", "--mask", "card", properties="security.protocol=SASL_PLAINTEXT\n"
    )


@pytest.fixture(scope="session")
def admin(console: RunningConsole) -> Visitor:
    """Return a visitor that has logged in as `admin`."""
    return logged_in(console, "admin")


@pytest.fixture(scope="session")
def carol(console: RunningConsole) -> Visitor:
    """Return a visitor that has logged in as `carol`."""
    return logged_in(console, "carol")
