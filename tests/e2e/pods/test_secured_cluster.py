"""A Cluster with TLS, users and rights, and clients that use its Secret as it comes."""

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from e2e.pods.administrator import administrator
from e2e.pods.castle import Castle
from harness.deadline import PATIENCE_S, wait_for
from local_kubernetes.kubectl import PATIENTLY

NAME = "vault"
LISTENERS = [
    {"name": "inside", "port": 9092, "tls": True, "authentication": {"type": "tls"}},
    {"name": "outside", "port": 9094, "type": "nodeport", "tls": True, "authentication": {"type": "scram-sha-512"}},
]
CLUSTER = {
    "apiVersion": "barnabas.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": NAME},
    "spec": {
        "brokers": {"replicas": 2},
        "storage": {"volumes": [{"id": 0, "size": "1Gi", "deleteClaim": True}]},
        "listeners": LISTENERS,
        "authorization": {"type": "simple"},
        "deletionPolicy": "Delete",
    },
}


@pytest.fixture
def vault(castle: Castle) -> Iterator[Castle]:
    castle.kubectl("apply", "-f-", stdin=json.dumps(CLUSTER))
    castle.kubectl("wait", "--for=condition=Ready", f"cluster/{NAME}", PATIENTLY)
    yield castle
    castle.kubectl("delete", "cluster", NAME, "--wait=false")


def test_the_administrator_writes_and_reads_with_its_secret_and_nobody_without_it(
    vault: Castle, tmp_path: Path
) -> None:
    own = administrator(vault, NAME, "outside", tmp_path)
    topic = f"gold-{uuid4().hex[:8]}"
    admin = AdminClient(own)
    admin.create_topics([NewTopic(topic, 2, 2)])[topic].result(PATIENCE_S)
    producer = Producer(own)
    producer.produce(topic, b"bar")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**own, "group.id": "guards", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = wait_for(lambda: consumer.poll(1), lambda record: record is not None and not record.error())
    assert found is not None
    assert found.value() == b"bar"
    consumer.close()
    stranger = AdminClient({**own, "sasl.password": "another"})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=10)
