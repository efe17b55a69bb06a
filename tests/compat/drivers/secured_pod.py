"""A broker with the settings and Secrets of a secured Cluster in pods, and its users."""

import asyncio
import datetime as dt
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_operator.app.cluster_options import SystemClock, tls_identity
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.authorities import Data
from barnabas_operator.planning.brokers.cluster_secrets import Moment, SecretsPlan, broker_hosts, plan_secrets
from barnabas_operator.planning.brokers.pod_properties import CERTIFICATES_FOLDER, pod_properties
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.reconcile.users.user_reconciler import UserBrokers, UsersWork
from barnabas_operator.reconcile.users.user_secrets import KubeSecrets
from barnabas_operator.reconcile.worker_environment import Identity
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, ClusterStatus, Listener, ListenerStatus
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.security import Authentication, Authorization, LagExporter
from barnabas_operator.resources.user import AclResource, AclRule, User, UserAuthentication, UserAuthorization, UserSpec
from harness.barnabas_server import prepare_barnabas
from harness.deadline import PATIENCE_S
from harness.kube_memory import KubeMemory, no_server
from harness.server_process import ServerProcess, free_port

HOST = "127.0.0.1"
LISTENERS = (
    Listener(name="users", tls=True, authentication=Authentication(type="scram-sha-512")),
    Listener(name="machines", port=9094, tls=True, authentication=Authentication(type="tls")),
    Listener(name="old", port=9095, tls=True, authentication=Authentication(type="plain")),
)
CLUSTER = Cluster(
    metadata=ObjectMeta(name="one", namespace="air"),
    spec=ClusterSpec(listeners=LISTENERS, authorization=Authorization(), lag_exporter=LagExporter()),
)
RIGHTS = UserAuthorization(
    acls=(AclRule(resource=AclResource(type="topic", name="flights"), operations=("Write", "Describe")),)
)
CAROL = User(
    metadata=ObjectMeta(name="carol", namespace="air", uid="carol"),
    spec=UserSpec(authentication=UserAuthentication(type="tls"), authorization=RIGHTS),
)
DAVE = User(
    metadata=ObjectMeta(name="dave", namespace="air", uid="dave"),
    spec=UserSpec(authentication=UserAuthentication(type="scram-sha-256"), authorization=RIGHTS),
)
"""A user with a password that only the plain listener accepts."""
P = ParamSpec("P")
T = TypeVar("T")


class Secured(NamedTuple):
    """A running broker with the Secrets of its Cluster, and the address of each listener and of the pages."""

    broker: ServerProcess
    secrets: Mapping[str, Data]
    addresses: Mapping[str, str]
    folder: Path

    def operator(self, secret: str = "one-operator", key: str = "tls") -> ClusterAdmin:
        """Connect with a certificate of a Secret to the listener of replication."""
        data = self.secrets[secret]
        authorities = self.secrets["one-operator"]["ca.crt"].decode()
        identity = Identity(authorities, data[f"{key}.crt"].decode(), data[f"{key}.key"].decode())
        return ClusterAdmin(self.addresses["REPLICATION-TLS"], SystemClock(), 3.0, security=tls_identity(identity))

    def client(self, listener: str, **settings: str) -> AdminClient:
        """Return a client that trusts the authority in the administrator's Secret."""
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
        client.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=PATIENCE_S)


@contextmanager
def secured_broker(folder: Path) -> Iterator[Secured]:
    """Run a broker with the settings and Secrets of CLUSTER."""
    external = ExternalAccess()
    hosts = broker_hosts(CLUSTER, external, frozenset()) | {HOST}
    plan = plan_secrets(CLUSTER, hosts, external, Moment({}, {}, dt.datetime.now(dt.UTC), lambda: "a password"))
    assert isinstance(plan, SecretsPlan)
    for name, content in plan.by_name["one-broker-certificates"].items():
        (folder / name).write_bytes(content)
    addresses = {name: f"{HOST}:{free_port()}" for name in ("REPLICATION-TLS", "USERS", "MACHINES", "OLD")}
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
    """Make a User as the operator does; return the folder with the files of its Secret."""
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
    """Return the call as a function that can be awaited."""

    async def awaited(*args: P.args, **kwargs: P.kwargs) -> T:
        return call(*args, **kwargs)

    return awaited
