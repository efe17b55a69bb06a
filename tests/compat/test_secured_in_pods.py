"""A broker with the settings and Secrets of a secured Cluster: each listener accepts only its own clients."""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from barnabas_core.acls import AclOperation as Op
from barnabas_core.acls import ResourceType
from barnabas_jobs.credentials import VARIABLE, for_librdkafka
from barnabas_jobs.kafka.placement import placement_of
from barnabas_jobs.kafka.topics import Cluster as Jobs
from barnabas_jobs.kafka.writer import CONSUMER, NotWritten, TopicWriter
from barnabas_jobs.planning.errors import JobFailed
from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_lag.app.main import Clocks, Rounds
from barnabas_lag.app.options import parse
from barnabas_operator.planning.brokers.broker_security import SCRAM
from barnabas_operator.planning.object_names import FOLDER
from barnabas_operator.planning.users.user_plan import (
    SCRAM_256,
    DeletePassword,
    SetPassword,
    UserStep,
    acl_steps,
    companion_acls,
)
from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from drivers.secured_pod import CAROL, CLUSTER, DAVE, HOST, Secured, files_of, secured_broker
from harness.deadline import PATIENCE_S, wait_for
from harness.stranger import given_to_a_stranger, listening_ports

Right = tuple[ResourceType, Op]
PROBES = {"http /metrics", "http /healthz", "http /startupz", "http /readyz"}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.fixture(scope="module")
def flights(secured: Secured) -> str:
    secured.create("flights")
    return "flights"


def write(settings: Mapping[str, str], topic: str, attempts: int = 20) -> list[str]:
    """Write a record; return the first results of the delivery and the first errors of the client."""
    told: list[str] = []
    producer = Producer({**settings, "error_cb": lambda error: told.append(error.name()), "message.timeout.ms": 60_000})
    producer.produce(topic, b"one", on_delivery=lambda error, _: told.append(error.name() if error else "written"))
    for _ in range(attempts):
        producer.poll(1)
        if told:
            break
    producer.purge()
    return told


def test_clients_connect_with_the_unchanged_files_of_a_certificate_user(
    secured: Secured, flights: str, java: RemoteClient, tmp_path: Path
) -> None:
    folder = files_of(secured, CAROL, tmp_path)
    assert write(json.loads((folder / "librdkafka.json").read_text()), flights) == ["written"]
    (folder / "p12.properties").write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={folder / 'ca.crt'}\nssl.keystore.type=PKCS12\n"
        f"ssl.keystore.location={folder / 'user.p12'}\n"
        f"ssl.keystore.password={(folder / 'user.password').read_text()}\n"
    )
    tools = KafkaTools(java, secured.addresses["MACHINES"])
    for file in ("client.properties", "p12.properties"):
        asked = f"kafka-topics.sh --bootstrap-server localhost:9092 --command-config {folder / file} --list"
        assert tools.check(asked).split() == ["flights"], f"{file}: this user sees no other topics"


def test_clients_connect_to_a_plain_listener_only_with_the_password_of_a_user(
    secured: Secured, flights: str, java: RemoteClient, tmp_path: Path
) -> None:
    folder = files_of(secured, DAVE, tmp_path)
    own: dict[str, str] = json.loads((folder / "librdkafka.json").read_text())
    assert (own["bootstrap.servers"], own["sasl.mechanisms"]) == (secured.addresses["OLD"], "PLAIN")
    assert write(own, flights) == ["written"]
    for stranger in ({"sasl.password": "another"}, {"sasl.username": "nobody"}):
        assert "_AUTHENTICATION" in write({**own, **stranger, "log_level": "0"}, flights)
    tools = KafkaTools(java, secured.addresses["OLD"])
    file = folder / "client.properties"
    listed = tools.check(f"kafka-topics.sh --bootstrap-server localhost:9092 --command-config {file} --list")
    assert listed.split() == ["flights"]


@pytest.mark.parametrize("step", [SetPassword("dave", SCRAM_256, "new"), DeletePassword("dave", SCRAM_256)])
def test_a_changed_or_deleted_password_closes_connections_made_by_plain(
    secured: Secured, flights: str, tmp_path: Path, step: UserStep
) -> None:
    own = json.loads((files_of(secured, DAVE, tmp_path) / "librdkafka.json").read_text())
    told: list[str] = []
    client = Producer({**own, "error_cb": lambda error: told.append(error.name()), "log_level": "0"})
    client.list_topics(flights, timeout=PATIENCE_S)
    with secured.operator() as admin:
        assert admin.apply_to_users([step]) == {}

    def refused() -> bool:
        client.poll(0.1)
        return "_AUTHENTICATION" in told

    wait_for(refused, bool, 60.0)


def test_a_client_without_credentials_gets_only_probes_and_metrics(secured: Secured) -> None:
    named = {name: int(address.rpartition(":")[2]) for name, address in secured.addresses.items()}
    assert listening_ports(secured.broker.pid) == set(named.values())
    assert {name: given_to_a_stranger(HOST, port) for name, port in named.items()} == {
        "REPLICATION-TLS": set(),
        "USERS": {"versions by TLS", "mechanisms by TLS"},
        "MACHINES": set(),
        "OLD": {"versions by TLS", "mechanisms by TLS"},
        "HTTP": PROBES,
    }


def test_the_administrator_connects_with_the_password_that_the_operator_sets(secured: Secured) -> None:
    data = secured.secrets["one-admin"]
    with secured.operator() as admin:
        assert admin.apply_to_users([SetPassword("admin", SCRAM, data["password"].decode())]) == {}
    login = {"security_protocol": "SASL_SSL", "sasl_mechanisms": "SCRAM-SHA-512", "sasl_username": "admin"}
    client = secured.client("USERS", **login, sasl_password=data["password"].decode())
    client.create_topics([NewTopic("gold", 1, 1)])["gold"].result(timeout=PATIENCE_S)
    with pytest.raises(KafkaException):
        secured.client("USERS", **login, sasl_password="another").list_topics(timeout=3)


def test_the_administrators_certificate_is_accepted_by_users_listeners_only(
    secured: Secured,
) -> None:
    secured.create("silver")
    with pytest.raises(ClusterUnreachable):
        secured.operator("one-admin", "user")


def test_clients_need_a_certificate_of_the_right_authority(secured: Secured) -> None:
    data = secured.secrets["one-operator"]
    own = {"ssl_certificate_pem": data["tls.crt"].decode(), "ssl_key_pem": data["tls.key"].decode()}
    for proof in ({}, own):
        with pytest.raises(KafkaException):
            secured.client("MACHINES", security_protocol="SSL", **proof).list_topics(timeout=3)
    for protocol in ("SSL", "PLAINTEXT"):
        with pytest.raises(KafkaException):
            secured.client("REPLICATION-TLS", security_protocol=protocol).list_topics(timeout=3)


def client_file(secured: Secured, secret: str) -> Path:
    """Write the files of a Secret as a pod would mount them; return the one with the settings."""
    (folder := secured.folder / secret).mkdir(exist_ok=True)
    for name, content in secured.secrets[secret].items():
        (folder / name).write_text(content.decode().replace(FOLDER, str(folder)))
    return folder / "client.properties"


def give_rights(secured: Secured, *without: Right) -> None:
    """Give the lag exporter and runs all of their rights except for these."""
    with secured.operator() as admin:
        for user, acls in companion_acls(CLUSTER).items():
            wanted = {acl for acl in acls if (acl.pattern.resource_type, acl.entry.operation) not in without}
            assert admin.apply_to_users(list(acl_steps(user, admin.users().of(user), frozenset(wanted)))) == {}


@pytest.fixture(scope="module")
def behind(secured: Secured) -> str:
    """A topic with a record that a group has not read."""
    data = secured.secrets["one-admin"]
    certificate = {"ssl_certificate_pem": data["user.crt"].decode(), "ssl_key_pem": data["user.key"].decode()}
    client = secured.client("MACHINES", security_protocol="SSL", **certificate)
    kept = {"retention.ms": "-1"}  # The tests' records have timestamps in 1970.
    client.create_topics([NewTopic("behind", 1, 1, config=kept)])["behind"].result(timeout=PATIENCE_S)

    def commit() -> bool:
        group = ConsumerGroupTopicPartitions("slow", [TopicPartition("behind", 0, 0)])
        (answer,) = client.alter_consumer_group_offsets([group])["slow"].result(timeout=PATIENCE_S).topic_partitions
        return answer.error is None

    wait_for(commit)  # The topic of its coordinator has just been created.
    return "behind"


LAG, RETENTION = "kafka_consumergroup_lag", "kafka_offsets_retention_seconds"


@pytest.mark.parametrize(
    ("without", "lost"),
    [
        ((), set()),
        (((ResourceType.TOPIC, Op.DESCRIBE),), {LAG}),
        (((ResourceType.GROUP, Op.DESCRIBE),), {LAG}),
        (((ResourceType.CLUSTER, Op.DESCRIBE_CONFIGS),), {RETENTION}),
    ],
)
@pytest.mark.usefixtures("behind")
def test_the_lag_exporter_reports_all_metrics_and_needs_each_of_its_rights(
    secured: Secured, without: tuple[Right, ...], lost: set[str]
) -> None:
    give_rights(secured, *without)
    file = client_file(secured, "one-lag-exporter")
    options = parse(["--bootstrap", secured.addresses["REPLICATION-TLS"], "--command-config", str(file)])

    def told() -> set[str]:
        with closing(connected_client(options.bootstrap, 10.0, "lag", options.security)) as client:
            rounds = Rounds(options, lambda: client, Clocks(lambda: 0.0, lambda: 0.0))
            rounds.run_once()
            return {each for each in (LAG, RETENTION) if f"\n{each}" in rounds.page().decode()}

    wait_for(told, lambda found: found == {LAG, RETENTION} - lost)


class Doings(NamedTuple):
    """The requests of runs to brokers, each with the client of its job."""

    bootstrap: str

    def write(self) -> None:
        (bounds,) = Jobs(self.bootstrap).bounds(Jobs(self.bootstrap).topic("behind")).values()
        writer = TopicWriter(self.bootstrap, "behind", {0: bounds.latest}, {0: 1}, {0: bounds.latest})
        assert list(writer([(0, 1, b"key", b"value", None)])) == [(0, 1, 0)]

    def read(self) -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **CONSUMER, **for_librdkafka()})
        with closing(consumer):
            consumer.assign([TopicPartition("behind", 0, 0)])
            message = wait_for(lambda: consumer.poll(1))
            assert message is not None
            if message.error() is not None:
                raise KafkaException(message.error())

    def create(self) -> None:
        Jobs(self.bootstrap).create_topic(f"again-{uuid4().hex}", 1, {})

    def delete_records(self) -> None:
        Jobs(self.bootstrap).delete_records("behind", {0: 0})

    def configs(self) -> None:
        Jobs(self.bootstrap).config("behind")

    def placement(self) -> None:
        placement_of(self.bootstrap)


@pytest.mark.parametrize(
    ("without", "lost"),
    [
        ((), set()),
        (((ResourceType.TOPIC, Op.WRITE),), {"write"}),
        (((ResourceType.TOPIC, Op.READ),), {"read"}),
        (((ResourceType.TOPIC, Op.CREATE),), {"create"}),
        (((ResourceType.TOPIC, Op.DELETE),), {"delete_records"}),
        (((ResourceType.TOPIC, Op.DESCRIBE_CONFIGS),), {"configs"}),
        (((ResourceType.CLUSTER, Op.DESCRIBE),), {"placement"}),
    ],
)
@pytest.mark.usefixtures("behind")
def test_jobs_can_do_all_their_work_and_need_each_of_their_rights(
    secured: Secured, without: tuple[Right, ...], lost: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    give_rights(secured, *without)
    monkeypatch.setenv(VARIABLE, str(client_file(secured, "one-maintenance")))
    doings = Doings(secured.addresses["REPLICATION-TLS"])
    refused = set()
    for name in ("write", "read", "create", "delete_records", "configs", "placement"):
        try:
            getattr(doings, name)()
        except (JobFailed, NotWritten, KafkaException):
            refused.add(name)
    assert refused == lost
