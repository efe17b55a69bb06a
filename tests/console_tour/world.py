"""The cluster of the tour: three brokers, many topics, groups of all kinds, and a visitor who sees three topics."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    KafkaAdminClient,
    NewTopic,
    ResourcePattern,
    ResourceType,
)

from harness.cluster import BarnabasCluster, prepare_cluster
from harness.deadline import wait_for
from harness.server_process import free_port

TOPICS_A_REQUEST: Final = 250
MODERN: Final = 10
SHARED: Final = 5
MARKUP: Final = b"<img src=x onerror=document.title='broken'>"
SEEN: Final = ("airports", "flights", "orders-00001")
"""The topics that the user `viewer` may see."""
USERS: Final = tuple(f"user-{number}" for number in range(5))
"""Users who see everything, each with a collector of its own."""
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"


@contextmanager
def secured_cluster(folder: Path) -> Iterator[tuple[BarnabasCluster, str]]:
    """Run three brokers; yield them, and the addresses at which users log in."""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    passwords = " ".join(f'user_{name}="{name}-secret"' for name in ("viewer", *USERS))
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{PLAIN} required {passwords};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *USERS)),
    }
    listeners = [f"SASL_PLAINTEXT://{each}" for each in addresses]
    with closing(prepare_cluster(folder, 3, settings, listeners=listeners)) as cluster:
        cluster.start()
        yield cluster, ",".join(addresses)


def fill(cluster: BarnabasCluster, topics: int, groups: int) -> None:
    """Make topics, groups of all kinds with lag, messages with markup, and the rights of `viewer`."""
    cluster.create_topic("flights", 6, 3)
    cluster.create_topic("airports", 1, 3)
    client = cluster.client()
    flights = [f'{{"flight": {number}, "from": "JFK", "to": "LAX"}}'.encode() for number in range(200)]
    for number in range(6):
        client.write("flights", flights, number)
    client.write("airports", [MARKUP])
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap)) as admin:
        names = [f"orders-{number:05d}" for number in range(topics)]
        for begin in range(0, len(names), TOPICS_A_REQUEST):
            some = [NewTopic(name, 1, 1) for name in names[begin : begin + TOPICS_A_REQUEST]]
            admin.create_topics(some, timeout_ms=60_000)
        _allow(admin)
    for number in range(groups - MODERN - SHARED):
        name = "billing" if number == 0 else f"group-{number}"
        client.commit(name, *(TopicPartition("flights", each, number % 200) for each in range(6)))
    for number in range(MODERN):
        _join_once(cluster.bootstrap, f"modern-{number}")
    for number in range(SHARED):
        _share_once(cluster.bootstrap, f"workers-{number}")


def _allow(admin: KafkaAdminClient) -> None:
    rules = [
        ACL("User:viewer", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(ResourceType.TOPIC, topic))
        for topic in SEEN
        for operation in (ACLOperation.READ, ACLOperation.DESCRIBE)
    ]
    billing = ResourcePattern(ResourceType.GROUP, "billing")
    admin.create_acls([*rules, ACL("User:viewer", "*", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, billing)])


def _join_once(bootstrap: str, group: str) -> None:
    """Make a group of the consumer protocol that has read some records, and whose member has left."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": "consumer"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe(["flights"])
        wait_for(lambda: consumer.poll(0.2))
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _share_once(bootstrap: str, group: str) -> None:
    """Make a share group whose member has left."""
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        consumer.subscribe(["flights"])
        producer = Producer({"bootstrap.servers": bootstrap})

        def taken() -> int:
            producer.produce("flights", b'{"flight": 0}')
            producer.flush(10)
            return len(consumer.poll(timeout=0.5))

        wait_for(taken)
    finally:
        consumer.close()
