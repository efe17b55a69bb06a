"""Records into one topic, each to its partition, in order, once: what a Spark task of a restore does.

A task that begins asks where the partition ends: what is beyond its base was written by a run or task before it, and is
skipped. Where a task of this run has begun before it, or the end is not the one that the driver saw, it waits first
until nobody writes any more: what that task has sent may be on its way yet. A task that fails drops what it has not
sent, and an idempotent producer that stops at the first failure leaves no gap, so the target always has a beginning of
what is to be written.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas_jobs.credentials import for_librdkafka
from barnabas_jobs.kafka.quiet import QUIET_S, SILENT_S, quiet_ends

TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.1
REASON_S: Final = 1.0
POLLED: Final = 5000
"""The number of records after which acknowledged ones leave the queue, so that it is never full of them."""
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


Record = tuple[int, int, bytes | None, bytes | None, Sequence[Mapping[str, Any]] | None]
"""Partition, timestamp_ms, key, value and headers, each with `key` and `value`. A named tuple takes as long to make as
a record to send.
"""


class TopicWriter:
    """Goes to the executors. `bases` and `records`: where each partition begins, and how many records it gets.

    `ends`: where each ended when the driver last looked, after it had been quiet.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        bases: Mapping[int, int],
        records: Mapping[int, int],
        ends: Mapping[int, int],
        quiet_s: float = QUIET_S,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.bases = dict(bases)
        self.records = dict(records)
        self.ends = dict(ends)
        self.quiet_s = quiet_s

    def __call__(self, records: Iterable[Record], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Write records, ordered by partition and offset; yield partition, records written, records that were there.

        `is_again`: a task before this one had the same records, and may have written some.
        """
        producer = Producer({"bootstrap.servers": self.bootstrap, **PRODUCER, **for_librdkafka()})
        for partition, of_partition in groupby(records, key=itemgetter(0)):
            yield self._write(producer, partition, of_partition, is_again)

    def _write(
        self, producer: Producer, partition: int, records: Iterator[Record], is_again: bool
    ) -> tuple[int, int, int]:
        there = self._skip_what_is_there(partition, records, is_again)
        written = 0
        try:
            while sent := self._send(producer, partition, islice(records, POLLED)):
                written += sent
                producer.poll(0)
            while len(producer):
                self._await_acknowledgement(producer, partition)
        except KafkaException as error:
            reason = _reason(producer, error.args[0])
            raise NotWritten(f"{self.topic}-{partition}: the brokers refused a record: {reason}") from error
        finally:
            producer.purge()  # A retried task writes the rest again.
        return partition, written, there

    def _skip_what_is_there(self, partition: int, records: Iterator[Record], is_again: bool) -> int:
        """Skip the records that were already written, and return their number. The last must be the topic's last."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, **CONSUMER, **for_librdkafka()})
        try:
            place = TopicPartition(self.topic, partition)
            ask = partial(consumer.get_watermark_offsets, place, TIMEOUT_S)
            base, records_max = self.bases[partition], self.records[partition]
            end = ask()[1]
            if is_again or end != self.ends[partition]:
                end = quiet_ends(self.topic, ask, self.quiet_s)[1]
            there = end - base
            if not 0 <= there <= records_max:
                raise NotWritten(
                    f"{self.topic}-{partition} ends at offset {end}; allowed is {base} to {base + records_max}: "
                    "somebody else has written to it"
                )
            last = None
            for _ in range(there):
                last = next(records)
            if last is not None and _kept(last) != _read(consumer, self.topic, partition, end - 1):
                raise NotWritten(
                    f"{self.topic}-{partition}: offset {end - 1} is not what this restore has written there: somebody "
                    "else has written to it"
                )
            return there
        finally:
            consumer.close()

    def _send(self, producer: Producer, partition: int, records: Iterable[Record]) -> int:
        """Send the records, and return their number.

        Passes arguments by position: their names would be half of what a call costs.
        """
        produce, topic, sent = producer.produce, self.topic, 0
        for sent, (_, timestamp_ms, key, value, headers) in enumerate(records, 1):  # noqa: B007
            own: Any = _headers(headers) if headers else None  # The stub does not allow headers without a value.
            while True:
                try:
                    produce(topic, value, key, partition, None, None, timestamp_ms, own)
                    break
                except BufferError:
                    self._await_acknowledgement(producer, partition)
        return sent

    def _await_acknowledgement(self, producer: Producer, partition: int) -> None:
        """Wait until a broker acknowledges at least one record.

        A record that fails is a fatal error, which `poll` raises.
        """
        waiting, deadline_s = len(producer), time.monotonic() + SILENT_S
        while len(producer) >= waiting > 0:
            if time.monotonic() > deadline_s:
                raise NotWritten(
                    f"{self.topic}-{partition}: no broker took a record for {SILENT_S:.0f} s; run it again"
                )
            producer.poll(POLL_S)


def _reason(producer: Producer, error: KafkaError) -> str:
    """Return the reason of an error. For a fatal error `produce` gives none; the next poll does."""
    if error.code() == KafkaError._FATAL:
        try:
            producer.poll(REASON_S)
        except KafkaException as fatal:
            return str(fatal.args[0].str())
    return error.str()


def _headers(headers: Iterable[Mapping[str, Any]]) -> list[tuple[str, bytes | None]]:
    return [(each["key"], each["value"]) for each in headers]


def _kept(record: Record) -> tuple[Any, ...]:
    """Return a record as `_read` finds it."""
    _, timestamp_ms, key, value, headers = record
    return timestamp_ms, key, value, _headers(headers or ())


def _read(consumer: Consumer, topic: str, partition: int, offset: int) -> tuple[Any, ...] | None:
    """Timestamp, key, value and headers of the record at an offset; None where it cannot be read."""
    consumer.assign([TopicPartition(topic, partition, offset)])
    message = consumer.poll(TIMEOUT_S)
    if message is None or message.error() is not None or message.offset() != offset:
        return None
    return message.timestamp()[1], message.key(), message.value(), list(message.headers() or ())
