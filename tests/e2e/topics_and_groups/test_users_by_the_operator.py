"""The operator process on a real API server with a real broker: Users authenticate with their Secrets."""

import json
import os
import time
from base64 import b64decode
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from e2e.world import World, world_of_one
from harness.barnabas_server import prepare_barnabas
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import free_port
from harness.soak import took
from local_kubernetes.control_plane import ControlPlane

WRITES = {"resource": {"type": "topic", "name": "flights"}, "operations": ["Write", "Describe"]}
OF_ALICE = AclBindingFilter(
    ResourceType.TOPIC,
    "flights",
    ResourcePatternType.LITERAL,
    "User:alice",
    "*",
    AclOperation.ANY,
    AclPermissionType.ANY,
)
OF_BOB = AclBinding(
    ResourceType.TOPIC,
    "flights",
    ResourcePatternType.LITERAL,
    "User:bob",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)
UNDONE = (
    "another client had changed the user, and the operator has undone the change: give user alice these ACLs: "
    "allow WRITE on topic flights (literal) from *,"
    " allow DESCRIBE on topic flights (literal) from *"
)
IMPOSSIBLE: tuple[tuple[dict[str, Any], str], ...] = (
    (
        {"authorization": {"acls": [{**WRITES, "resource": {"type": "topic", "name": "__x"}}]}},
        "name is __x; allowed: names that do not begin with __",
    ),
    (
        {"authorization": {"acls": [{**WRITES, "resource": {"type": "cluster", "name": "x"}}]}},
        "name is x, but a resource of type cluster has no name; remove the field",
    ),
    (
        {"authentication": {"type": "tls"}, "username": "a b"},
        "spec.username is a b; allowed with TLS authentication: 1 to 64 letters",
    ),
    (
        {"quotas": {"controllerMutationRate": 0}},
        "spec.quotas.controllerMutationRate is 0 or less; allowed: more than 0",
    ),
)


MANY = 1_000
POLL_S = 1.0
READY_S_MAX = 60.0
GIVE_UP_S = 600.0


class UserWorld:
    """A Cluster whose broker has users, and the operator; `safe_port` is the port of the SASL listener."""

    def __init__(self, world: World, safe_port: int) -> None:
        self.world = world
        self._safe_port = safe_port

    def apply(self, name: str, **spec: Any) -> None:
        self.world.plane.requests.apply(self._body(name, spec))

    def refused(self, name: str, spec: dict[str, Any]) -> str:
        """Return the API server's refusal of a User."""
        text = json.dumps(self._body(name, spec))
        return str(self.world.plane.kubectl.ask("-n", self.world.namespace, "apply", "-f-", stdin=text).stderr)

    def _body(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        meta = {"name": name, "namespace": self.world.namespace}
        spec = {"authentication": {"type": "scram-sha-512"}, **spec}
        return {"apiVersion": "barnabas.dev/v1alpha1", "kind": "User", "metadata": meta, "spec": spec}

    def apply_many(self, names: Sequence[str], **spec: Any) -> None:
        bodies = (json.dumps(self._body(name, spec)) for name in names)
        self.world.kubectl("apply", "--server-side", "-f-", stdin="\n---\n".join(bodies))

    def ready(self) -> int:
        """The number of Users that are ready."""
        rows = self.world.kubectl("get", "bu", "--no-headers").splitlines()
        return sum(row.split()[1] == "True" for row in rows)

    def await_ready(self, name: str) -> None:
        wait_for(lambda: self.world.ready(name, "User"), lambda said: said[0] == "True", PATIENCE_S)

    def files(self, name: str) -> dict[str, str]:
        """Return the content of a User's Secret."""
        found = self.world.plane.requests.get("Secret", self.world.namespace, name) or {}
        return {key: b64decode(text).decode() for key, text in found.get("data", {}).items()}

    def settings(self, name: str) -> dict[str, str]:
        """Return its librdkafka.json with the address of this broker, which is no pod."""
        return {**json.loads(self.files(name)["librdkafka.json"]), "bootstrap.servers": f"127.0.0.1:{self._safe_port}"}

    def comes_in(self, settings: dict[str, str]) -> bool:
        try:
            AdminClient({**settings, "log_level": 0}).list_topics(timeout=3)
        except KafkaException:
            return False
        return True


@pytest.fixture
def users(defined_api_server: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[UserWorld]:
    safe = free_port()
    settings = {
        "broker.id": "0",
        "offsets.topic.replication.factor": "1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SAFE:SASL_PLAINTEXT",
        "listener.name.safe.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
        "inter.broker.listener.name": "PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    open_port = free_port()
    settings["listeners"] = f"PLAINTEXT://127.0.0.1:{open_port},SAFE://127.0.0.1:{safe}"
    process = prepare_barnabas(tmp_path, settings)
    process.port = open_port
    namespace = f"users-{os.getpid()}-{abs(hash(request.node.name)) % 10**8}"
    with closing(process) as broker:
        broker.launch()
        broker.await_port()
        with world_of_one(defined_api_server, namespace, broker, tmp_path) as world, closing(world.operator()):
            yield UserWorld(world, safe)


def test_a_client_authenticates_with_the_secret_of_a_user_until_it_is_deleted(users: UserWorld) -> None:
    world = users.world
    world.apply("flights", partitions=1)
    users.apply("alice", authorization={"acls": [WRITES]}, quotas={"producerByteRate": 1_000_000})
    users.await_ready("alice")
    world.await_ready("flights")
    columns = world.kubectl("get", "bu", "alice", "--no-headers").split()
    assert columns[:5] == ["alice", "True", "one", "scram-sha-512", "alice"]
    settings = users.settings("alice")
    outcomes: list[object] = []
    producer = Producer(settings)
    producer.produce("flights", b"one", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == [None]
    (deleted,) = world.admin.delete_acls([OF_ALICE]).values()
    assert len(deleted.result(PATIENCE_S)) == 2
    wait_for(lambda: world.events("User", "alice"), lambda told: any(UNDONE in each for each in told), PATIENCE_S)
    world.kubectl("annotate", "bu", "alice", "barnabas.dev/rotate-password=1")
    wait_for(lambda: users.settings("alice")["sasl.password"] != settings["sasl.password"])
    wait_for(lambda: users.comes_in(users.settings("alice")))
    wait_for(lambda: not users.comes_in(settings))
    world.kubectl("delete", "user", "alice")
    assert not users.comes_in(users.settings("alice"))
    left = world.admin.describe_acls(OF_ALICE).result(PATIENCE_S)
    assert left == []


@pytest.mark.soak(only=True)
@pytest.mark.timeout(900)
def test_a_thousand_users_are_ready_within_a_minute(users: UserWorld) -> None:
    names = [f"user-{number:04d}" for number in range(MANY)]
    began_s = time.monotonic()
    users.apply_many(names, authorization={"acls": [WRITES]}, quotas={"producerByteRate": 1_000_000})
    print(f"applied after {time.monotonic() - began_s:.1f} s, {users.ready()} are ready", flush=True)
    wait_for(users.ready, lambda count: count == MANY, GIVE_UP_S, POLL_S)
    took(f"{MANY} Users from kubectl apply until all are ready", time.monotonic() - began_s, READY_S_MAX)
    for name in (names[0], names[-1]):
        assert users.comes_in(users.settings(name))


def test_impossible_users_are_refused_and_foreign_secrets_and_users_stay_unchanged(users: UserWorld) -> None:
    world = users.world
    (made,) = world.admin.create_acls([OF_BOB]).values()
    made.result(PATIENCE_S)
    world.kubectl("create", "secret", "generic", "theirs", "--from-literal=password=short")
    users.apply("theirs")
    _, why = wait_for(lambda: world.ready("theirs", "User"), lambda said: said[0] == "False", PATIENCE_S)
    assert why.startswith("Secret theirs already exists and does not belong to the User")
    assert users.files("theirs") == {"password": "short"}
    users.apply("bob", adopt=False)
    _, why = wait_for(lambda: world.ready("bob", "User"), lambda said: said[0] == "False", PATIENCE_S)
    assert why.startswith("user bob existed before the User, and spec.adopt is false")
    for spec, said in IMPOSSIBLE:
        assert said in users.refused("wrong", spec)
