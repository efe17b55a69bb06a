"""The brokers under test, ours and Apache Kafka's: both have the same listeners, users, ACLs and resources."""

import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_core.acls import ANY_NAME, AclOperation, PatternType, Permission, ResourceType
from harness.apache_kafka import SINGLE_NODE, Node, format_log_dirs
from harness.barnabas_server import BARNABAS, prepare_barnabas
from harness.certificates import Authority
from harness.deadline import wait_for
from harness.server_process import START_SECONDS_MAX, ServerProcess, free_port
from rights.answers import text_of
from rights.cells import ALL_KINDS, NO_TOPIC, Grants, names, resource_names
from rights.client import PASSWORD, Client

ADMIN: Final = "admin"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
GROUPS_OF_ACLS: Final = 100


class Server(NamedTuple):
    """A running broker with the addresses for users."""

    process: ServerProcess
    ports: Mapping[str, int]
    tls: ssl.SSLContext

    def client(self, user: str, listener: str = SASL_PLAINTEXT) -> Client:
        """Return a connection of a user."""
        return Client(self.ports[listener], user, self.tls if listener == SASL_SSL else None)


def _settings(folder: Path, users: Iterable[str], ports: Mapping[str, int]) -> tuple[dict[str, str], ssl.SSLContext]:
    authority = Authority(folder / "ca")
    passwords = " ".join(f'user_{each}="{PASSWORD}"' for each in (*users, ADMIN))
    jaas = f"{PLAIN} required {passwords};"
    settings = {
        "listener.security.protocol.map": ",".join(f"{each}:{each}" for each in ("PLAINTEXT", *ports)),
        "sasl.enabled.mechanisms": "PLAIN",
        **{f"listener.name.{each.lower()}.plain.sasl.jaas.config": jaas for each in ports},
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.issue("broker").file),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{ADMIN}",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "num.partitions": "1",
    }
    return settings, ssl.create_default_context(cadata=authority.certificate)


def _listeners(first: str, ports: Mapping[str, int]) -> str:
    return ",".join([first, *(f"{name}://127.0.0.1:{port}" for name, port in ports.items())])


def _ports() -> dict[str, int]:
    return {SASL_PLAINTEXT: free_port(), SASL_SSL: free_port()}


@contextmanager
def barnabas(folder: Path, users: Iterable[str], program: Sequence[str] = BARNABAS) -> Iterator[Server]:
    """Run our broker, with the arguments of Python that start `barnabas`."""
    folder.mkdir()
    ports = _ports()
    settings, tls = _settings(folder, users, ports)
    topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    own = {f"{topic}.replication.factor": "1" for topic in topics}
    process = prepare_barnabas(folder, settings | own, program=program)
    config = folder / "server.properties"
    first = f"PLAINTEXT://127.0.0.1:{process.port}"
    config.write_text(config.read_text().replace(f"listeners={first}", f"listeners={_listeners(first, ports)}"))
    yield from _running(Server(process, ports, tls))


@contextmanager
def kafka(folder: Path, users: Iterable[str]) -> Iterator[Server]:
    """Run Apache Kafka, broker and controller in one."""
    folder.mkdir()
    ports = _ports()
    settings, tls = _settings(folder, users, ports)
    node = Node(folder, 1, free_port(), free_port())
    first = f"PLAINTEXT://127.0.0.1:{node.port},CONTROLLER://127.0.0.1:{node.controller_port}"
    protocols = f"CONTROLLER:PLAINTEXT,{settings['listener.security.protocol.map']}"
    own = {"listeners": _listeners(first, ports), "listener.security.protocol.map": protocols}
    node.write_config([node.voter], {**SINGLE_NODE, **settings, **own})
    format_log_dirs(node)
    process = node.process("512M")
    yield from _running(Server(process, ports, tls))


def _running(server: Server) -> Iterator[Server]:
    try:
        server.process.start()
        for port in server.ports.values():
            wait_for(partial(_is_open, port), seconds_max=START_SECONDS_MAX)
        yield server
        server.process.stop()
    finally:
        server.process.close()


def _is_open(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def prepare(server: Server, users: Mapping[Grants, str]) -> UUID:
    """Make the resources that should exist, and the users' ACLs; return the id of the topic."""
    there = names(is_there=True, topic_id=NO_TOPIC)
    with server.client(ADMIN) as admin:
        topic = {"name": there.topic, "num_partitions": 1, "replication_factor": 1}
        made = admin.request("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000}).topics[0]
        assert made.error_code == 0, made
        creations = [acl for grants, user in users.items() for acl in _acls(grants, user)]
        for start in range(0, len(creations), GROUPS_OF_ACLS):
            part = creations[start : start + GROUPS_OF_ACLS]
            assert not any(each.error_code for each in admin.request("CreateAcls", 3, {"creations": part}).results)
        wait_for(lambda: _is_committed(admin, there.group, made.topic_id), seconds_max=60)
        producer = {"transactional_id": there.transactional_id, "transaction_timeout_ms": 60_000}
        producer |= {"producer_id": -1, "producer_epoch": -1}
        wait_for(lambda: _has_producer(admin, producer), seconds_max=60)
        credential = {"mechanism": 1, "iterations": 4096, "salt": b"salt" * 4, "salted_password": b"p" * 32}
        upsertions = [{"name": there.user, **credential}]
        admin.request("AlterUserScramCredentials", 0, {"upsertions": upsertions})
    return UUID(str(made.topic_id))


def _is_committed(admin: Client, group: str, topic_id: UUID) -> bool:
    topic = {"topic_id": topic_id, "partitions": [{"committed_offset": 1}]}
    request = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": [topic]}
    admin.request("FindCoordinator", 4, {"coordinator_keys": [group]})
    topics = admin.request("OffsetCommit", 10, request).topics
    return bool(topics and topics[0].partitions[0].error_code == 0)


def _has_producer(admin: Client, producer: Mapping[str, Any]) -> bool:
    admin.request("FindCoordinator", 4, {"key_type": 1, "coordinator_keys": [producer["transactional_id"]]})
    return bool(admin.request("InitProducerId", 4, producer).error_code == 0)


def _acls(grants: Grants, user: str) -> Iterator[dict[str, Any]]:
    for operation, kind in grants.allowed:
        for name in resource_names(kind):
            yield _acl(user, kind, name, operation, Permission.ALLOW)
    if grants.denied:
        for kind in ALL_KINDS:
            name = resource_names(kind)[0] if kind is ResourceType.CLUSTER else ANY_NAME
            yield _acl(user, kind, name, AclOperation.ALL, Permission.ALLOW)
        for operation, kind in grants.denied:
            name = resource_names(kind)[0] if kind is ResourceType.CLUSTER else ANY_NAME
            yield _acl(user, kind, name, operation, Permission.DENY)


def _acl(user: str, kind: ResourceType, name: str, operation: AclOperation, permission: Permission) -> dict[str, Any]:
    pattern = {"resource_type": kind, "resource_name": name, "resource_pattern_type": PatternType.LITERAL}
    entry = {"principal": f"User:{user}", "host": "*", "operation": operation, "permission_type": permission}
    return {**pattern, **entry}


def state(server: Server) -> list[str]:
    """Return all that a refused request could have changed, as the administrator sees it."""
    there = names(is_there=True, topic_id=NO_TOPIC)
    everything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    offsets = {"name": there.topic, "partitions": [{"timestamp": -1}, {"timestamp": -2}]}
    questions: tuple[tuple[str, int, dict[str, Any]], ...] = (
        ("Metadata", 12, {"topics": None}),
        ("ListOffsets", 7, {"replica_id": -1, "topics": [offsets]}),
        ("ListGroups", 5, {}),
        ("OffsetFetch", 7, {"group_id": there.group, "topics": None}),
        ("DescribeConfigs", 4, {"resources": [{"resource_type": 2, "resource_name": there.topic}]}),
        ("DescribeConfigs", 4, {"resources": [{"resource_type": 4, "resource_name": "1"}]}),
        ("DescribeAcls", 3, {**everything, **dict.fromkeys(_FILTERS)}),
        ("DescribeUserScramCredentials", 0, {"users": None}),
        ("DescribeTransactions", 0, {"transactional_ids": [there.transactional_id]}),
        ("ListTransactions", 2, {}),
        ("DescribeProducers", 0, {"topics": [{"name": there.topic, "partition_indexes": [0]}]}),
        ("ListPartitionReassignments", 0, {"topics": None}),
    )
    with server.client(ADMIN) as admin:
        return [
            f"{api}: {text_of(admin.request(api, version, fields), version, {})}" for api, version, fields in questions
        ]


_FILTERS: Final = ("resource_name_filter", "principal_filter", "host_filter")
