"""Options of consumers: assign, subscribe, seek, offset reset, waiting for bytes (F14)."""

import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from drivers.interface import Message
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import PATIENCE_S


@pytest.fixture
def filled(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """A topic of one partition with the records 0 to 9."""
    librdkafka.create_topic(topic, 1, {})
    librdkafka.produce(topic, [Message(b"%d" % n) for n in range(10)])
    return topic


@pytest.fixture
def consumer(librdkafka: LibrdkafkaClient, topic: str) -> Iterator[Consumer]:
    """A consumer in its own group."""
    made = librdkafka.consumer(**{"group.id": topic, "heartbeat.interval.ms": 300, "enable.partition.eof": True})
    yield made
    made.close()


def value_of(message: "confluent_kafka.Message[bytes, bytes] | None") -> bytes:
    value = message.value() if message is not None else None
    assert value is not None, "there is no record, or it has no value"
    return value


def read_to_the_end(consumer: Consumer) -> list[bytes]:
    """Return all values up to the end of the one assigned partition."""
    values: list[bytes] = []
    while True:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"no end of the partition after {values}"
        if message.error() is not None:
            return values
        values.append(value_of(message))


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", numbers(0, 10)), ("latest", [])])
def test_a_group_without_offsets_starts_at_the_configured_reset(
    librdkafka: LibrdkafkaClient, filled: str, reset: str, expected: list[bytes]
) -> None:
    consumer = librdkafka.consumer(
        **{"group.id": f"{filled}-{reset}", "auto.offset.reset": reset, "enable.partition.eof": True}
    )
    consumer.subscribe([filled])
    assert read_to_the_end(consumer) == expected
    consumer.close()


def test_a_position_out_of_range_is_reset_or_reported_as_an_error(librdkafka: LibrdkafkaClient, filled: str) -> None:
    for reset, first in (("earliest", 0), ("error", None)):
        consumer = librdkafka.consumer(**{"auto.offset.reset": reset})
        consumer.assign([TopicPartition(filled, 0, 5_000)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert (message.offset() if message.error() is None else None) == first
        consumer.close()


def test_a_fetch_waits_for_its_minimum_bytes_or_its_maximum_wait(librdkafka: LibrdkafkaClient, topic: str) -> None:
    librdkafka.create_topic(topic, 1, {})
    librdkafka.produce(topic, [Message(b"small")])
    patient = librdkafka.consumer(
        **{"fetch.min.bytes": 100_000, "fetch.wait.max.ms": 60_000, "socket.timeout.ms": 70_000}
    )
    patient.assign([TopicPartition(topic, 0, 0)])
    assert patient.poll(1.0) is None, "the fetch was answered before it had fetch.min.bytes"
    librdkafka.produce(topic, [Message(b"x" * 200_000)])
    assert value_of(patient.poll(PATIENCE_S)) == b"small"
    patient.close()
    brief = librdkafka.consumer(**{"fetch.min.bytes": 100_000_000, "fetch.wait.max.ms": 300})
    brief.assign([TopicPartition(topic, 0, 0)])
    assert value_of(brief.poll(PATIENCE_S)) == b"small"
    brief.close()


def test_a_record_above_every_fetch_limit_is_still_consumed(librdkafka: LibrdkafkaClient, topic: str) -> None:
    librdkafka.create_topic(topic, 1, {})
    librdkafka.produce(topic, [Message(b"x" * 500_000), Message(b"next")])
    limits = {"fetch.message.max.bytes": 1_000, "fetch.max.bytes": 1_000, "message.max.bytes": 1_000}
    consumer = librdkafka.consumer(**limits)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [len(value_of(consumer.poll(PATIENCE_S))) for _ in range(2)] == [500_000, 4]
    consumer.close()


def test_a_waiting_fetch_is_answered_as_soon_as_a_record_is_written(librdkafka: LibrdkafkaClient, topic: str) -> None:
    librdkafka.create_topic(topic, 1, {})
    consumer = librdkafka.consumer(**{"fetch.wait.max.ms": 250_000, "socket.timeout.ms": 300_000})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(0.5) is None
    started = time.monotonic()
    librdkafka.produce(topic, [Message(b"v")])
    assert value_of(consumer.poll(200)) == b"v"
    assert time.monotonic() - started < 200, "the fetch waited for fetch.wait.max.ms"
    consumer.close()


def test_a_missing_topic_is_reported_to_the_consumer(librdkafka: LibrdkafkaClient, topic: str) -> None:
    consumer = librdkafka.consumer(**{"group.id": topic, "allow.auto.create.topics": False})
    consumer.subscribe([topic])
    message = consumer.poll(PATIENCE_S)
    assert message is not None
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        raise KafkaException(message.error())
    consumer.close()
