"""Records into one topic, each to its partition, in order, once: what a Spark task of a restore does.

A task that begins asks where the partition ends: what is beyond its base was written by a run or task before it, and is
skipped. An idempotent producer that stops at the first failure leaves no gap, so the target always has a beginning of
what is to be written.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

TIMEOUT_S: Final = 30.0
# The topic's own max.message.bytes decides.
LARGEST_MESSAGE: Final = 1_000_000_000
PRODUCER: Final = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    "acks": "all",
    "linger.ms": 20,
    "compression.type": "lz4",
    "message.max.bytes": LARGEST_MESSAGE,
    "log_level": 0,
}
CONSUMER: Final = {"group.id": "barnabas-restore", "enable.auto.commit": False, "log_level": 0}


class NotWritten(Exception):
    """A partition cannot be written as planned; says which and why."""


class Record(NamedTuple):
    """What is kept of a record in its new place."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class TopicWriter:
    """Goes to the executors. `bases` and `records`: where each partition begins, and how many records it gets."""

    def __init__(self, bootstrap: str, topic: str, bases: Mapping[int, int], records: Mapping[int, int]) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.bases = dict(bases)
        self.records = dict(records)

    def __call__(self, rows: Iterable[Any]) -> Iterator[tuple[int, int, int]]:
        """Of rows in the order of partitions and offsets: partition, records written, records that were there."""
        producer = Producer({"bootstrap.servers": self.bootstrap, **PRODUCER})
        for partition, of_partition in groupby(rows, key=lambda row: int(row["partition"])):
            yield self._write(producer, partition, map(_record, of_partition))

    def _write(self, producer: Producer, partition: int, records: Iterator[Record]) -> tuple[int, int, int]:
        there = self._skip_what_is_there(partition, records)
        failures: list[KafkaError] = []
        written = 0
        for record in records:
            self._send(producer, partition, record, failures)
            written += 1
            if failures:
                break
        producer.flush()
        if failures:
            raise NotWritten(f"{self.topic}-{partition}: the brokers refused a record: {failures[0].str()}")
        return partition, written, there

    def _skip_what_is_there(self, partition: int, records: Iterator[Record]) -> int:
        """How many were skipped. The last of them must be the last of the topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **CONSUMER})
        try:
            place = TopicPartition(self.topic, partition)
            end = consumer.get_watermark_offsets(place, TIMEOUT_S)[1]
            there = end - self.bases[partition]
            if not 0 <= there <= self.records[partition]:
                raise NotWritten(
                    f"{self.topic}-{partition} ends at offset {end}; allowed is {self.bases[partition]} to "
                    f"{self.bases[partition] + self.records[partition]}: somebody else has written to it"
                )
            last = None
            for _ in range(there):
                last = next(records)
            if last is not None and last != _read(consumer, self.topic, partition, end - 1):
                raise NotWritten(
                    f"{self.topic}-{partition}: offset {end - 1} is not what this restore has written there: somebody "
                    "else has written to it"
                )
            return there
        finally:
            consumer.close()

    def _send(self, producer: Producer, partition: int, record: Record, failures: list[KafkaError]) -> None:
        def told(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failures.append(error)

        while not failures:
            try:
                producer.produce(
                    self.topic,
                    record.value,
                    record.key,
                    partition=partition,
                    timestamp=record.timestamp_ms,
                    headers=record.headers or None,  # type: ignore[arg-type]  # Its stub knows none without a value.
                    on_delivery=told,
                )
                producer.poll(0)
                return
            except BufferError:
                producer.poll(0.1)
            except KafkaException as error:
                failures.append(error.args[0])


def _record(row: Any) -> Record:
    headers = [(each["key"], _plain(each["value"])) for each in row["headers"] or ()]
    return Record(row["timestamp_ms"], _plain(row["key"]), _plain(row["value"]), headers)


def _plain(value: bytearray | None) -> bytes | None:
    """Spark hands binary over as a bytearray."""
    return None if value is None else bytes(value)


def _read(consumer: Consumer, topic: str, partition: int, offset: int) -> Record | None:
    """The record at an offset; None where it cannot be read."""
    consumer.assign([TopicPartition(topic, partition, offset)])
    message = consumer.poll(TIMEOUT_S)
    if message is None or message.error() is not None or message.offset() != offset:
        return None
    headers: Any = message.headers() or []
    return Record(message.timestamp()[1], message.key(), message.value(), list(headers))
