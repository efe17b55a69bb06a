"""`barnabas up` on a secured Cluster: clients connect with the files that it names, and not without them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from drivers.builds import java_driver
from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import CLUSTER, RunningUp, topic_manifest
from harness.soak import size

SECURITY = """\
      tls: true
      authentication: {type: KIND}
  authorization: {superUsers: [alice]}
"""


KINDS = ("scram-sha-512", "plain", "tls")


@pytest.fixture(scope="module", params=size(("scram-sha-512", "tls"), KINDS))
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningUp]:
    up = RunningUp(tmp_path_factory.mktemp("up"))
    listener = "      port: 0\n"
    up.write("cluster.yaml", CLUSTER.replace(listener, listener + SECURITY.replace("KIND", request.param)))
    up.write("flights.yaml", topic_manifest("flights", "partitions: 1"))
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    try:
        yield up
    finally:
        up.close()


def settings_of(file: Path) -> dict[str, str]:
    """Return the settings in a file for kcat, as librdkafka takes them."""
    pairs = (line.partition("=") for line in file.read_text().splitlines())
    return {name: value for name, _, value in pairs}


@pytest.mark.soak
def test_clients_connect_only_with_the_files_of_a_user(secured: RunningUp) -> None:
    alice = secured.data / "security" / "users" / "alice"
    assert (
        f"{alice}/client.properties for Kafka's tools, and for kcat and librdkafka in {alice}/kcat.conf"
        in secured.log()
    )
    assert all(each.stat().st_mode & 0o077 == 0 for each in (secured.data / "security").rglob("*") if each.is_file())
    settings = settings_of(alice / "kcat.conf")
    outcomes: list[object] = []
    producer = Producer(settings)
    producer.produce("flights", b"one", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None]
    nobody = {name: settings[name] for name in ("bootstrap.servers", "ssl.ca.location")}
    for protocol in ("SSL", "PLAINTEXT"):
        with pytest.raises(KafkaException):
            AdminClient({**nobody, "security.protocol": protocol, "log_level": 0}).list_topics(timeout=2)


@pytest.mark.soak
@pytest.mark.parametrize("secured", size(("scram-sha-512",), KINDS), indirect=True, scope="module")
def test_kafkas_tools_connect_with_the_file_of_a_user(secured: RunningUp, tmp_path: Path) -> None:
    file = secured.data / "security" / "users" / "admin" / "client.properties"
    java = RemoteClient("java", java_driver(secured.bootstrap), tmp_path / "java.log")
    try:
        tools = KafkaTools(java, secured.bootstrap)
        listed = tools.check(f"kafka-topics.sh --bootstrap-server localhost:9092 --command-config {file} --list")
        assert listed.split() == ["flights"]
    finally:
        java.close()
