"""Topics created by their first record, partitions added while a producer runs, refused records (F06, F10, F12)."""

import pytest
from confluent_kafka import KafkaException, Producer

from drivers.interface import Client, Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from harness.deadline import PATIENCE_S, wait_for


def test_the_first_record_creates_its_topic(client: Client, topic: str) -> None:
    client.produce(topic, [Message(b"first")])
    assert [record.value for record in client.read(topic, 1)] == [b"first"]
    assert client.topics()[topic] == 1


def test_librdkafka_sends_to_partitions_added_while_it_runs(librdkafka: LibrdkafkaClient, topic: str) -> None:
    librdkafka.create_topic(topic, 1, {})
    settings = {**librdkafka.settings, "topic.metadata.refresh.interval.ms": 300, "partitioner": "murmur2"}
    producer = Producer(settings)
    places: set[int | None] = set()

    def produce() -> int:
        for n in range(20):
            producer.produce(topic, b"v", b"%d" % n, on_delivery=lambda _, message: places.add(message.partition()))
        producer.flush(PATIENCE_S)
        return len(places)

    assert produce() == 1
    librdkafka.create_partitions(topic, 3)
    wait_for(produce, lambda count: count == 3)


def test_java_sends_to_partitions_added_while_it_runs(java: RemoteClient, topic: str) -> None:
    java.create_topic(topic, 1, {})
    java.ask("open_producer", config={"metadata.max.age.ms": "300"})
    assert java.ask("send_keys", topic=topic, count=20) == [0]
    java.create_partitions(topic, 3)
    wait_for(lambda: java.ask("send_keys", topic=topic, count=20), lambda places: places == [0, 1, 2])
    java.ask("close_producer")


def test_a_record_above_max_message_bytes_is_refused(librdkafka: LibrdkafkaClient, topic: str) -> None:
    librdkafka.create_topic(topic, 1, {"max.message.bytes": "2000"})
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        librdkafka.produce(topic, [Message(b"x" * 5_000)])
    librdkafka.produce(topic, [Message(b"x" * 1_000)])
    assert len(librdkafka.read(topic, 1)) == 1


def test_a_compacted_topic_refuses_a_record_without_a_key(librdkafka: LibrdkafkaClient, topic: str) -> None:
    librdkafka.create_topic(topic, 1, {"cleanup.policy": "compact"})
    with pytest.raises(KafkaException, match="INVALID_RECORD"):
        librdkafka.produce(topic, [Message(b"v")])
    librdkafka.produce(topic, [Message(b"v", key=b"k")])


@pytest.mark.parametrize(
    ("config", "messages", "failure"),
    [
        ({"cleanup.policy": "compact"}, [Message(b"v", key=key) for key in (b"a", None, b"b", None)], "has no key"),
        (
            {"message.timestamp.before.max.ms": "60000"},
            [Message(b"v", timestamp_ms=at) for at in (None, 1_000_000_000_000, None, 1_000_000_000_000)],
            "has the timestamp 1000000000000",
        ),
    ],
)
def test_java_gets_the_error_of_each_invalid_record_of_a_batch(
    java: RemoteClient, topic: str, config: dict[str, str], messages: list[Message], failure: str
) -> None:
    java.create_topic(topic, 1, config)
    failures = java.failures(topic, messages)
    assert [each and each[0] for each in failures] == [
        "KafkaException",  # This record is valid, but its batch was refused.
        "InvalidRecordException",
        "KafkaException",
        "InvalidRecordException",
    ]
    told = [each[1] for each in failures if each]
    assert "it was part of a batch which had one more more invalid records" in told[0]
    assert told[1].startswith(f"record 1 {failure}")
    assert told[3].startswith(f"record 3 {failure}")


def test_min_insync_replicas_above_the_number_of_replicas_means_all_replicas(
    librdkafka: LibrdkafkaClient, topic: str
) -> None:
    librdkafka.create_topic(topic, 1, {"min.insync.replicas": "2"})
    librdkafka.produce(topic, [Message(b"v")], acks="all")
    assert len(librdkafka.read(topic, 1)) == 1


def test_log_append_time_replaces_timestamps_by_the_brokers_clock(librdkafka: LibrdkafkaClient, topic: str) -> None:
    librdkafka.create_topic(topic, 1, {"message.timestamp.type": "LogAppendTime"})
    librdkafka.produce(topic, [Message(b"v", timestamp_ms=1_000)])
    (record,) = librdkafka.read(topic, 1)
    assert record.timestamp_ms > 1_700_000_000_000


def test_topics_whose_names_collide_in_metrics_are_refused(tools: KafkaTools, topic: str) -> None:
    tools.check(f"kafka-topics.sh --bootstrap-server localhost:9092 --create --topic {topic}.a")
    refused = tools.run(f"kafka-topics.sh --bootstrap-server localhost:9092 --create --topic {topic}_a")
    assert refused.status == 1
    assert "collide" in refused.text
