"""Records into one topic, each to its partition, in order, once: what a Spark task of a restore does.

A task that begins asks where the partition ends: what is beyond its base was written by a run or task before it, and is
skipped. Where a task before it has begun, it waits first until nobody writes any more: what that has sent may be on its
way yet. An idempotent producer that stops at the first failure leaves no gap, so the target always has a beginning of
what is to be written.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas_jobs.kafka.quiet import quiet_ends

TIMEOUT_S: Final = 30.0
STUCK_S: Final = 120.0
POLL_S: Final = 0.1
REASON_S: Final = 1.0
# The memory of records that wait to be sent. Below that the topic's own max.message.bytes decides.
BUFFER_KBYTES: Final = 262_144
LARGEST_MESSAGE: Final = 250_000_000
PRODUCER: Final = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    # A record that timed out would leave a gap, so the wait for acknowledgements ends the task instead.
    "message.timeout.ms": 0,
    "acks": "all",
    "linger.ms": 20,
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": BUFFER_KBYTES,
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

    def __call__(self, rows: Iterable[Any], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Of rows in the order of partitions and offsets: partition, records written, records that were there.

        `is_again`: a task before this one had the same rows, and may have written some.
        """
        producer = Producer({"bootstrap.servers": self.bootstrap, **PRODUCER})
        for partition, of_partition in groupby(rows, key=lambda row: int(row["partition"])):
            yield self._write(producer, partition, map(_record, of_partition), is_again)

    def _write(
        self, producer: Producer, partition: int, records: Iterator[Record], is_again: bool
    ) -> tuple[int, int, int]:
        there = self._skip_what_is_there(partition, records, is_again)
        written = 0
        try:
            for record in records:
                self._send(producer, partition, record)
                written += 1
            while len(producer):
                self._await_acknowledgement(producer, partition)
        except KafkaException as error:
            reason = _reason(producer, error.args[0])
            raise NotWritten(f"{self.topic}-{partition}: the brokers refused a record: {reason}") from error
        return partition, written, there

    def _skip_what_is_there(self, partition: int, records: Iterator[Record], is_again: bool) -> int:
        """How many were skipped. The last of them must be the last of the topic."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **CONSUMER})
        try:
            place = TopicPartition(self.topic, partition)
            ask = partial(consumer.get_watermark_offsets, place, TIMEOUT_S)
            base, records_max = self.bases[partition], self.records[partition]
            end = ask()[1]
            if is_again or base < end < base + records_max:
                end = quiet_ends(self.topic, ask)[1]
            there = end - base
            if not 0 <= there <= records_max:
                raise NotWritten(
                    f"{self.topic}-{partition} ends at offset {end}; allowed is {base} to {base + records_max}: "
                    "somebody else has written to it"
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

    def _send(self, producer: Producer, partition: int, record: Record) -> None:
        while True:
            try:
                producer.produce(
                    self.topic,
                    record.value,
                    record.key,
                    partition=partition,
                    timestamp=record.timestamp_ms,
                    headers=record.headers or None,  # type: ignore[arg-type]  # Its stub knows none without a value.
                )
                return
            except BufferError:
                self._await_acknowledgement(producer, partition)

    def _await_acknowledgement(self, producer: Producer, partition: int) -> None:
        """Of at least one record. A record that fails is a fatal error, which `flush` raises."""
        waiting, deadline_s = len(producer), time.monotonic() + STUCK_S
        while len(producer) >= waiting > 0:
            if time.monotonic() > deadline_s:
                raise NotWritten(f"{self.topic}-{partition}: no broker took a record for {STUCK_S:.0f} s; run it again")
            producer.flush(POLL_S)


def _reason(producer: Producer, error: KafkaError) -> str:
    """If `produce` meets a fatal error, it says only that; the next poll says why."""
    if error.code() == KafkaError._FATAL:
        try:
            producer.poll(REASON_S)
        except KafkaException as fatal:
            return str(fatal.args[0].str())
    return error.str()


def _record(row: Any) -> Record:
    headers = [(each["key"], each["value"]) for each in row["headers"] or ()]
    return Record(row["timestamp_ms"], row["key"], row["value"], headers)


def _read(consumer: Consumer, topic: str, partition: int, offset: int) -> Record | None:
    """The record at an offset; None where it cannot be read."""
    consumer.assign([TopicPartition(topic, partition, offset)])
    message = consumer.poll(TIMEOUT_S)
    if message is None or message.error() is not None or message.offset() != offset:
        return None
    headers: Any = message.headers() or []
    return Record(message.timestamp()[1], message.key(), message.value(), list(headers))
