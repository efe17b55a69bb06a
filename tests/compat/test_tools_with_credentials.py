"""Kafka's tools with `--command-config`, on a broker with SASL_SSL and an authorizer."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from drivers.broker_under_test import PROPERTIES
from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from harness.barnabas_server import prepare_barnabas
from harness.certificates import Authority
from harness.server_process import free_port

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SERVER = "--bootstrap-server localhost:9092"
QUOTAS = "producer_byte_rate=1048576,consumer_byte_rate=2097152"


class Secured:
    """The tools for the broker, and files with the credentials of its users."""

    def __init__(self, tools: KafkaTools, folder: Path, authority: Authority) -> None:
        self.tools = tools
        self._folder = folder
        self._authority = authority

    def user(self, name: str, mechanism: str, module: str) -> str:
        """Return the option with which a tool authenticates as the user."""
        (file := self._folder / f"{name}.properties").write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} required username="{name}" password="geheim";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self._authority.file}\n"
        )
        return f"--command-config {file}"


@pytest.fixture
def secured(java: RemoteClient, tmp_path: Path) -> Iterator[Secured]:
    port, authority = free_port(), Authority(tmp_path / "authority")
    settings = {
        **PROPERTIES,
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
        "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.secure.plain.sasl.jaas.config": f'{PLAIN} required user_admin="geheim";',
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(authority.issue("broker").file),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin",
    }
    server = prepare_barnabas(tmp_path, settings)
    config = tmp_path / "server.properties"
    text = config.read_text()
    config.write_text(text.replace("listeners=PLAINTEXT", f"listeners=SECURE://127.0.0.1:{port},PLAINTEXT", 1))
    server.start()
    try:
        yield Secured(KafkaTools(java, f"127.0.0.1:{port}"), tmp_path, authority)
    finally:
        server.close()


def test_an_admin_creates_a_user_with_acls_and_quotas_that_writes_and_reads(secured: Secured) -> None:
    tools = secured.tools
    admin, alice = secured.user("admin", "PLAIN", PLAIN), secured.user("alice", "SCRAM-SHA-512", SCRAM)
    tools.check(f"kafka-topics.sh {SERVER} {admin} --create --topic flights --partitions 1")
    about = f"kafka-configs.sh {SERVER} {admin} --entity-type users --entity-name alice"
    tools.check(f"{about} --alter --add-config SCRAM-SHA-512=[password=geheim]")
    tools.check(f"{about} --alter --add-config {QUOTAS}")
    shown = tools.check(f"{about} --describe")
    assert "SCRAM-SHA-512=iterations=4096" in shown
    assert all(f"{each}.0" in shown for each in QUOTAS.split(","))

    assert tools.run(f"kafka-topics.sh {SERVER} {alice} --describe --topic flights").status == 1
    acls = f"kafka-acls.sh {SERVER} {admin}"
    for role in ("--producer --topic flights", "--consumer --topic flights --group readers"):
        tools.check(f"{acls} --add --allow-principal User:alice {role}")
    listed = tools.check(f"{acls} --list --topic flights")
    assert all(f"operation={each}, permissionType=ALLOW" in listed for each in ("READ", "WRITE", "DESCRIBE"))
    tools.check(f"kafka-console-producer.sh {SERVER} {alice} --topic flights", "LH 400\n")
    consumer = f"kafka-console-consumer.sh {SERVER} {alice} --topic flights --group readers --from-beginning"
    assert tools.check(f"{consumer} --max-messages 1 --timeout-ms 60000").splitlines() == ["LH 400"]

    tools.check(f"{acls} --remove --force --topic flights")
    assert "User:alice" not in tools.check(f"{acls} --list --topic flights")
    assert "User:alice" in tools.check(f"{acls} --list --group readers")


def test_a_user_works_off_a_topic_with_rights_to_both_the_topic_and_the_share_group(secured: Secured) -> None:
    tools = secured.tools
    admin, alice = secured.user("admin", "PLAIN", PLAIN), secured.user("alice", "SCRAM-SHA-512", SCRAM)
    configs, acls = f"kafka-configs.sh {SERVER} {admin}", f"kafka-acls.sh {SERVER} {admin}"
    tools.check(f"kafka-topics.sh {SERVER} {admin} --create --topic tasks --partitions 1")
    tools.check(
        f"{configs} --entity-type users --entity-name alice --alter --add-config SCRAM-SHA-512=[password=geheim]"
    )
    of_group = f"{configs} --entity-type groups --entity-name workers"
    tools.check(f"{of_group} --alter --add-config share.auto.offset.reset=earliest,share.delivery.count.limit=3")
    described = tools.check(f"{of_group} --describe")
    assert all(f"share.{each}" in described for each in ("auto.offset.reset=earliest", "delivery.count.limit=3"))
    tools.check(f"kafka-console-producer.sh {SERVER} {admin} --topic tasks", "LH 400\n")
    worker = f"kafka-console-share-consumer.sh {SERVER} {alice} --topic tasks --group workers --max-messages 1"
    described_by_alice = f"kafka-share-groups.sh {SERVER} {alice} --group workers --describe"

    tools.check(f"{acls} --add --allow-principal User:alice --operation Read --topic tasks")
    assert "a total of 0 messages" in tools.run(f"{worker} --timeout-ms 1000").text
    assert "GroupAuthorizationException" in tools.run(described_by_alice).text
    tools.check(f"{acls} --add --allow-principal User:alice --operation Read --group workers")
    assert tools.check(f"{worker} --timeout-ms 60000").splitlines() == ["LH 400"]
    assert "workers" in tools.check(described_by_alice)
