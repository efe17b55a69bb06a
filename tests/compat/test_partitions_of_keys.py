"""The partition of a key: ours, Java's and what the clients really do agree (F05)."""

import random

from barnabas_core.partitioner import partition_for_key
from drivers.interface import Client, Message
from drivers.remote import RemoteClient

KEYS = 10_000


def test_ten_thousand_random_keys_have_the_partition_that_java_gives_them(java: RemoteClient) -> None:
    chance = random.Random("keys")
    keys = [chance.randbytes(chance.randrange(0, 40)) for _ in range(KEYS)]
    for partitions in (1, 6, 7, 50, 1000):
        asked = java.ask("partitions_of_keys", keys=[key.hex() for key in keys], partitions=partitions)
        assert [partition_for_key(key, partitions) for key in keys] == asked


def test_the_java_producer_sends_keys_where_the_partitioner_says(java: RemoteClient, topic: str) -> None:
    check_places(java, topic, {})


def test_librdkafka_told_to_sends_keys_there_too(librdkafka: Client, topic: str) -> None:
    check_places(librdkafka, topic, {"partitioner": "murmur2"})


def test_kafka_python_sends_keys_there_too(clients, topic: str) -> None:
    check_places(clients("kafka-python"), topic, {})


def check_places(client: Client, topic: str, options: dict[str, str]) -> None:
    keys = [b"key %d" % n for n in range(300)]
    client.create_topic(topic, 7, {})
    client.produce(topic, [Message(b"v", key=key) for key in keys], **options)
    placed = {record.key: record.partition for record in client.read(topic, len(keys))}
    assert placed == {key: partition_for_key(key, 7) for key in keys}


def test_records_without_a_key_reach_every_partition(java: RemoteClient, topic: str) -> None:
    java.create_topic(topic, 4, {})
    java.produce(topic, [Message(b"x" * 500) for _ in range(2_000)], config={"batch.size": "1000", "linger.ms": "0"})
    assert {record.partition for record in java.read(topic, 2_000)} == {0, 1, 2, 3}
