"""A broker with the settings and Secrets of a secured Cluster in pods: each listener lets in its own clients."""

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.app.tls_identity import tls_identity
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.cluster_secrets import Moment, SecretsPlan, broker_hosts, plan_secrets
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.brokers.local_security import SCRAM
from barnabas_operator.planning.brokers.pod_properties import pod_properties
from barnabas_operator.planning.brokers.pod_security import CERTIFICATES_FOLDER
from barnabas_operator.planning.users.user_steps import SetPassword
from barnabas_operator.reconcile.worker_environment import Identity
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Listener
from barnabas_operator.resources.object_meta import ObjectMeta
from barnabas_operator.resources.security import Authentication, Authorization
from harness.barnabas_server import prepare_barnabas
from harness.server_process import ServerProcess, free_port

HOST = "127.0.0.1"
LISTENERS = (
    Listener(name="users", tls=True, authentication=Authentication(type="scram-sha-512")),
    Listener(name="machines", port=9094, tls=True, authentication=Authentication(type="tls")),
)
CLUSTER = Cluster(
    metadata=ObjectMeta(name="one", namespace="air"),
    spec=ClusterSpec(listeners=LISTENERS, authorization=Authorization()),
)


class Secured(NamedTuple):
    """A running broker with the Secrets of its Cluster, and the address of each listener."""

    broker: ServerProcess
    secrets: Mapping[str, Data]
    addresses: Mapping[str, str]
    folder: Path

    def operator(self, secret: str = "one-operator", key: str = "tls") -> ClusterAdmin:
        """Connect with a certificate of a Secret, where brokers replicate."""
        data = self.secrets[secret]
        authorities = self.secrets["one-operator"]["ca.crt"].decode()
        identity = Identity(authorities, data[f"{key}.crt"].decode(), data[f"{key}.key"].decode())
        return ClusterAdmin(self.addresses["REPLICATION"], SystemClock(), 3.0, security=tls_identity(identity))

    def client(self, listener: str, **settings: str) -> AdminClient:
        """Return a client that trusts what the administrator's Secret says."""
        authority = self.secrets["one-admin"]["ca.crt"].decode()
        own: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.addresses[listener],
            "ssl.ca.pem": authority,
            "log_level": 0,
        }
        return AdminClient(own | {name.replace("_", "."): value for name, value in settings.items()})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder, external = tmp_path_factory.mktemp("secured"), ExternalAccess()
    hosts = broker_hosts(CLUSTER, external, frozenset()) | {HOST}
    plan = plan_secrets(CLUSTER, hosts, external, Moment({}, {}, dt.datetime.now(dt.UTC), lambda: "a password"))
    assert isinstance(plan, SecretsPlan)
    for name, content in plan.by_name["one-broker-certificates"].items():
        (folder / name).write_bytes(content)
    addresses = {name: f"{HOST}:{free_port()}" for name in ("REPLICATION", "USERS", "MACHINES")}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    own = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "http.listener": f"{HOST}:{free_port()}",
        "log.dirs": str(folder / "logs"),
        "metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}",
    }
    properties = {
        name: text.replace(CERTIFICATES_FOLDER, str(folder))
        for name, text in (pod_properties(CLUSTER, 0, external) | own).items()
    }
    broker = prepare_barnabas(folder, {"broker.id": "0", **properties})
    broker.port = int(addresses["REPLICATION"].rpartition(":")[2])
    with closing(broker):
        broker.launch()
        broker.await_port()
        yield Secured(broker, plan.by_name, addresses, folder)


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
    data = secured.secrets["one-admin"]
    own = {"ssl_certificate_pem": data["user.crt"].decode(), "ssl_key_pem": data["user.key"].decode()}
    client = secured.client("MACHINES", security_protocol="SSL", **own)
    client.create_topics([NewTopic("silver", 1, 1)])["silver"].result(timeout=30)
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
            secured.client("REPLICATION", security_protocol=protocol).list_topics(timeout=3)
