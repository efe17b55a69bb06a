"""A broker with the settings and Secrets of a secured Cluster in pods: each listener lets in its own clients."""

import asyncio
import datetime as dt
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_core.acls import AclOperation as Op
from barnabas_core.acls import ResourceType
from barnabas_jobs.credentials import VARIABLE, for_librdkafka
from barnabas_jobs.kafka.placement import placement_of
from barnabas_jobs.kafka.topics import Cluster as Jobs
from barnabas_jobs.kafka.writer import CONSUMER, NotWritten, TopicWriter
from barnabas_jobs.planning.errors import JobFailed
from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_lag.app.options import parse
from barnabas_lag.app.rounds import Clocks, Rounds
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.app.tls_identity import tls_identity
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.cluster_secrets import Moment, SecretsPlan, broker_hosts, plan_secrets
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.brokers.local_security import SCRAM
from barnabas_operator.planning.brokers.pod_properties import pod_properties
from barnabas_operator.planning.brokers.pod_security import CERTIFICATES_FOLDER
from barnabas_operator.planning.mounted_client import FOLDER
from barnabas_operator.planning.users.companion_rights import companion_acls
from barnabas_operator.planning.users.user_plan import acl_steps
from barnabas_operator.planning.users.user_steps import SetPassword
from barnabas_operator.reconcile.users.kube_secrets import KubeSecrets
from barnabas_operator.reconcile.users.reconcile_users import UserBrokers, UsersWork
from barnabas_operator.reconcile.worker_environment import Identity
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, ClusterStatus, Listener, ListenerStatus
from barnabas_operator.resources.lag_exporter import LagExporter
from barnabas_operator.resources.object_meta import ObjectMeta
from barnabas_operator.resources.security import Authentication, Authorization
from barnabas_operator.resources.user import AclResource, AclRule, User, UserAuthentication, UserAuthorization, UserSpec
from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from harness.barnabas_server import prepare_barnabas
from harness.deadline import wait_for
from harness.kube_memory import KubeMemory, no_server
from harness.server_process import ServerProcess, free_port
from harness.stranger import given_to_a_stranger, listening_ports

HOST = "127.0.0.1"
Right = tuple[ResourceType, Op]
LISTENERS = (
    Listener(name="users", tls=True, authentication=Authentication(type="scram-sha-512")),
    Listener(name="machines", port=9094, tls=True, authentication=Authentication(type="tls")),
)
CLUSTER = Cluster(
    metadata=ObjectMeta(name="one", namespace="air"),
    spec=ClusterSpec(listeners=LISTENERS, authorization=Authorization(), lag_exporter=LagExporter()),
)
CAROL = User(
    metadata=ObjectMeta(name="carol", namespace="air", uid="carol"),
    spec=UserSpec(
        authentication=UserAuthentication(type="tls"),
        authorization=UserAuthorization(
            acls=(AclRule(resource=AclResource(type="topic", name="flights"), operations=("Write", "Describe")),)
        ),
    ),
)
PROBES = {"http /metrics", "http /healthz", "http /startupz", "http /readyz"}
P = ParamSpec("P")
T = TypeVar("T")


class Secured(NamedTuple):
    """A running broker with the Secrets of its Cluster, and the address of each listener and of the pages."""

    broker: ServerProcess
    secrets: Mapping[str, Data]
    addresses: Mapping[str, str]
    folder: Path

    def operator(self, secret: str = "one-operator", key: str = "tls") -> ClusterAdmin:
        """Connect with a certificate of a Secret, where brokers replicate."""
        data = self.secrets[secret]
        authorities = self.secrets["one-operator"]["ca.crt"].decode()
        identity = Identity(authorities, data[f"{key}.crt"].decode(), data[f"{key}.key"].decode())
        return ClusterAdmin(self.addresses["REPLICATION-TLS"], SystemClock(), 3.0, security=tls_identity(identity))

    def client(self, listener: str, **settings: str) -> AdminClient:
        """Return a client that trusts what the administrator's Secret says."""
        authority = self.secrets["one-admin"]["ca.crt"].decode()
        own: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.addresses[listener],
            "ssl.ca.pem": authority,
            "log_level": 0,
        }
        return AdminClient(own | {name.replace("_", "."): value for name, value in settings.items()})

    def create(self, topic: str) -> None:
        """Create a topic with the certificate of the administrator."""
        data = self.secrets["one-admin"]
        own = {"ssl_certificate_pem": data["user.crt"].decode(), "ssl_key_pem": data["user.key"].decode()}
        client = self.client("MACHINES", security_protocol="SSL", **own)
        client.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=30)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, external = tmp_path_factory.mktemp("secured"), ExternalAccess()
    hosts = broker_hosts(CLUSTER, external, frozenset()) | {HOST}
    plan = plan_secrets(CLUSTER, hosts, external, Moment({}, {}, dt.datetime.now(dt.UTC), lambda: "a password"))
    assert isinstance(plan, SecretsPlan)
    for name, content in plan.by_name["one-broker-certificates"].items():
        (folder / name).write_bytes(content)
    addresses = {name: f"{HOST}:{free_port()}" for name in ("REPLICATION-TLS", "USERS", "MACHINES")}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    own = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "http.listener": (http := f"{HOST}:{free_port()}"),
        "log.dirs": str(folder / "logs"),
        "metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}",
    }
    properties = {
        name: text.replace(CERTIFICATES_FOLDER, str(folder))
        for name, text in (pod_properties(CLUSTER, 0, external) | own).items()
    }
    broker = prepare_barnabas(folder, {"broker.id": "0", **properties})
    broker.port = int(addresses["REPLICATION-TLS"].rpartition(":")[2])
    with closing(broker):
        broker.launch()
        broker.await_port()
        yield Secured(broker, plan.by_name, {**addresses, "HTTP": http}, folder)


def files_of(secured: Secured, user: User, folder: Path) -> Path:
    """Bring a User about as the operator does; return the folder with the files of its Secret."""
    listeners = tuple(
        ListenerStatus(name=each.name, bootstrap_servers=secured.addresses[each.name.upper()]) for each in LISTENERS
    )
    cluster = Cluster(metadata=CLUSTER.metadata, spec=CLUSTER.spec, status=ClusterStatus(listeners=listeners))

    async def bring(admin: ClusterAdmin) -> Mapping[str, str]:
        async with no_server() as connection:
            api = KubeMemory(connection)
            for name, data in secured.secrets.items():
                encoded = {key: b64encode(value).decode() for key, value in data.items()}
                api.put({"kind": "Secret", "metadata": {"name": name}, "data": encoded})
            secrets = KubeSecrets(api, "air", SystemClock(), 60.0)
            brokers = UserBrokers(called(admin.users), called(admin.apply_to_users))
            work = UsersWork(brokers, secrets, lambda: "b" * 32)
            round_ = await work.begin(cluster, (user,), "nowhere:1", int(time.time() * 1000))
            (outcome,) = (await work.reconcile(round_, (user,), ())).declared
            assert outcome.user.status is not None
            assert [each.status for each in outcome.user.status.conditions if each.type == "Ready"] == ["True"]
            made: Mapping[str, str] = (api.found("Secret", user.metadata.name) or {})["data"]
            return made

    with secured.operator() as admin:
        for name, text in asyncio.run(bring(admin)).items():
            (folder / name).write_bytes(b64decode(text))
    return folder


def called(call: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    return awaited


def test_clients_come_in_with_the_files_of_a_user_with_a_certificate_as_they_are(
    secured: Secured, java: RemoteClient, tmp_path: Path
) -> None:
    secured.create("flights")
    folder = files_of(secured, CAROL, tmp_path)
    outcomes: list[object] = []
    producer = Producer(json.loads((folder / "librdkafka.json").read_text()))
    producer.produce("flights", b"one", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None]
    (folder / "p12.properties").write_text(
        "security.protocol=SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={folder / 'ca.crt'}\nssl.keystore.type=PKCS12\n"
        f"ssl.keystore.location={folder / 'user.p12'}\n"
        f"ssl.keystore.password={(folder / 'user.password').read_text()}\n"
    )
    tools = KafkaTools(java, secured.addresses["MACHINES"])
    for file in ("client.properties", "p12.properties"):
        asked = f"kafka-topics.sh --bootstrap-server localhost:9092 --command-config {folder / file} --list"
        assert tools.check(asked).split() == ["flights"], f"{file}: all others are hidden from this user"


def test_a_stranger_gets_nothing_at_any_port_but_probes_and_metrics(secured: Secured) -> None:
    named = {name: int(address.rpartition(":")[2]) for name, address in secured.addresses.items()}
    assert listening_ports(secured.broker.pid) == set(named.values())
    assert {name: given_to_a_stranger(HOST, port) for name, port in named.items()} == {
        "REPLICATION-TLS": set(),
        "USERS": {"versions by TLS", "mechanisms by TLS"},
        "MACHINES": set(),
        "HTTP": PROBES,
    }


def test_the_operator_brings_the_password_with_which_the_administrator_comes_in(secured: Secured) -> None:
    data = secured.secrets["one-admin"]
    with secured.operator() as admin:
        assert admin.apply_to_users([SetPassword("admin", SCRAM, data["password"].decode())]) == {}
    login = {"security_protocol": "SASL_SSL", "sasl_mechanisms": "SCRAM-SHA-512", "sasl_username": "admin"}
    client = secured.client("USERS", **login, sasl_password=data["password"].decode())
    client.create_topics([NewTopic("gold", 1, 1)])["gold"].result(timeout=30)
    with pytest.raises(KafkaException):
        secured.client("USERS", **login, sasl_password="another").list_topics(timeout=3)


def test_the_administrator_comes_in_by_its_certificate_where_users_do_and_not_where_brokers_do(
    secured: Secured,
) -> None:
    secured.create("silver")
    with pytest.raises(ClusterUnreachable):
        secured.operator("one-admin", "user")


def test_nobody_comes_in_without_a_certificate_of_the_right_authority(secured: Secured) -> None:
    data = secured.secrets["one-operator"]
    own = {"ssl_certificate_pem": data["tls.crt"].decode(), "ssl_key_pem": data["tls.key"].decode()}
    for proof in ({}, own):
        with pytest.raises(KafkaException):
            secured.client("MACHINES", security_protocol="SSL", **proof).list_topics(timeout=3)
    for protocol in ("SSL", "PLAINTEXT"):
        with pytest.raises(KafkaException):
            secured.client("REPLICATION-TLS", security_protocol=protocol).list_topics(timeout=3)


def client_file(secured: Secured, secret: str) -> Path:
    """The settings among the files of a Secret, as a pod would mount them."""
    (folder := secured.folder / secret).mkdir(exist_ok=True)
    for name, content in secured.secrets[secret].items():
        (folder / name).write_text(content.decode().replace(FOLDER, str(folder)))
    return folder / "client.properties"


def give_rights(secured: Secured, *without: Right) -> None:
    """All that lag exporter and runs have, without these."""
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
    client.create_topics([NewTopic("behind", 1, 1)])["behind"].result(timeout=30)

    def commit() -> bool:
        group = ConsumerGroupTopicPartitions("slow", [TopicPartition("behind", 0, 0)])
        (answer,) = client.alter_consumer_group_offsets([group])["slow"].result(timeout=30).topic_partitions
        return answer.error is None

    wait_for(commit)  # Its coordinator has just been made.
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
def test_the_lag_exporter_tells_of_all_and_needs_each_of_its_rights(
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
    """What runs do with brokers, each with the client of their job."""

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
def test_runs_do_all_that_their_jobs_do_and_need_their_rights_to_topics_and_cluster(
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
