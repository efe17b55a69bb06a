"""Producers send a key to the partition that Java's partitioner chooses, so that keys stay where they are (F05)."""

from collections.abc import Callable
from typing import Any

from drivers.interface import Client, Message
from drivers.remote import RemoteClient

PARTITIONS = 7
KEYS = [b"key %d" % number for number in range(300)]


def test_the_java_producer_sends_keys_to_the_partitioners_choice(java: RemoteClient, topic: str) -> None:
    check_places(java, java, topic, {})


def test_librdkafka_with_murmur2_sends_keys_to_the_same_partitions(
    java: RemoteClient, librdkafka: Client, topic: str
) -> None:
    check_places(java, librdkafka, topic, {"partitioner": "murmur2"})


def test_kafka_python_sends_keys_to_the_same_partitions(
    java: RemoteClient, clients: Callable[[str], Client], topic: str
) -> None:
    check_places(java, clients("kafka-python"), topic, {})


def check_places(java: RemoteClient, client: Client, topic: str, options: dict[str, Any]) -> None:
    client.create_topic(topic, PARTITIONS, {})
    client.produce(topic, [Message(b"v", key=key) for key in KEYS], **options)
    placed = {record.key: record.partition for record in client.read(topic, len(KEYS))}
    wanted = java.ask("partitions_of_keys", keys=[key.hex() for key in KEYS], partitions=PARTITIONS)
    assert placed == dict(zip(KEYS, wanted, strict=True))


def test_records_without_a_key_reach_every_partition(java: RemoteClient, topic: str) -> None:
    java.create_topic(topic, 4, {})
    java.produce(topic, [Message(b"x" * 500) for _ in range(2_000)], config={"batch.size": "1000", "linger.ms": "0"})
    assert {record.partition for record in java.read(topic, 2_000)} == {0, 1, 2, 3}
