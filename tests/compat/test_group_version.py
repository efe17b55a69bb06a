"""The feature group.version: it is not lowered while groups use the consumer protocol, and without it nobody can."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka.admin import UpdateFeatureType
from kafka.errors import KafkaError

from barnabas_kafka.connection import connected_client
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from harness.stock_client import StockClient

UPGRADE, DOWNGRADE = UpdateFeatureType.UPGRADE, UpdateFeatureType.SAFE_DOWNGRADE


@pytest.fixture
def connected(peer: str, own_broker: ServerProcess) -> Iterator[Any]:
    if peer != "barnabas":
        pytest.skip("Apache Kafka lowers group.version under its groups")
    connected = connected_client(own_broker.bootstrap, PATIENCE_S, "operator")
    yield connected
    connected.close()


@pytest.fixture
def client(own_broker: ServerProcess) -> StockClient:
    return StockClient(own_broker.bootstrap)


@contextmanager
def member(client: StockClient, protocol: str) -> Iterator[Consumer]:
    """A consumer of the group `billing`, which stops at the first error."""
    consumer = Consumer({**client.settings, "group.id": "billing", "group.protocol": protocol})
    consumer.subscribe(["flights"])
    try:
        yield consumer
    finally:
        consumer.close()


def reads(consumer: Consumer) -> list[str]:
    """Return the errors of the consumer so far, or "assigned" once it has partitions."""
    message = consumer.poll(0.2)
    if message is not None and message.error() is not None:
        return [str(message.error())]
    return ["assigned"] if consumer.assignment() else []


def test_the_group_version_is_lowered_only_without_groups_of_the_consumer_protocol(
    connected: Any, client: StockClient
) -> None:
    client.create_topic("flights", 2)
    with member(client, "consumer") as consumer:
        assert wait_for(lambda: reads(consumer)) == ["assigned"]
        with pytest.raises(KafkaError, match=r"groups use the consumer protocol \(billing\)"):
            connected.update_features({"group.version": (DOWNGRADE, 0)})
    with pytest.raises(KafkaError, match=r"\(billing\); restart their members with group.protocol=classic, or delete"):
        connected.update_features({"group.version": (DOWNGRADE, 0)})  # It is empty, but still of that type.
    with member(client, "classic") as consumer:
        assert wait_for(lambda: reads(consumer)) == ["assigned"]
        connected.update_features({"group.version": (DOWNGRADE, 0)})
    with member(client, "consumer") as consumer:
        (error,) = wait_for(lambda: reads(consumer))
        assert "API version not supported" in error
    connected.update_features({"group.version": (UPGRADE, 1)})
    with member(client, "consumer") as consumer:
        assert wait_for(lambda: reads(consumer)) == ["assigned"]
