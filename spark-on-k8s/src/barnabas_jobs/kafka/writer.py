"""The writer in the tasks of a restore. It writes records into one topic: to their partitions, in order, exactly once.

A task first asks for the end offset of the partition. Records at or above the start offset of the restore were written
by an earlier run or task, so the task skips the same number of its own records.

Requests of an earlier task may still be on their way. Therefore the task waits until nobody writes if it is not the
first attempt, or if the end offset differs from the one that the driver read. A task fails after SILENT_S without an
acknowledgement. After QUIET_S without a new record, no task of a dead driver or executor therefore writes any more.

A slow replica can hide new records, because it holds back the high watermark, up to which consumers read. By default it
can do so for at most 45 s, which is less than QUIET_S: every 15 s, the leader removes replicas from the ISR that have
been behind for `replica.lag.time.max.ms` (30 s).

A failed task drops its unsent records, and its idempotent producer stops at the first failure. So the written records
are always a prefix of the planned records, without a gap.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from barnabas_jobs.credentials import for_librdkafka
from barnabas_jobs.planning.errors import JobFailed

TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.1
REASON_S: Final = 1.0
SILENT_S: Final = 40.0
QUIET_S: Final = 50.0
QUIET_SECONDS_MAX: Final = 600.0
QUIET_POLL_S: Final = 0.5
POLLED: Final = 5000
"""The number of records after which a task polls for acknowledgements, so that librdkafka's queue does not fill up."""
BATCH_BYTES: Final = 1_000_000
"""librdkafka's default size of a batch."""
# Both limits of librdkafka are so high that only the topic's max.message.bytes limits the size of a record.
BUFFER_KBYTES: Final = 262_144
LARGEST_MESSAGE: Final = 250_000_000
PRODUCER: Final = {
    "enable.idempotence": True,
    "enable.gapless.guarantee": True,
    # 0 means no timeout, because a timed-out record would leave a gap; instead, the task fails after SILENT_S.
    "message.timeout.ms": 0,
    "acks": "all",
    "linger.ms": 20,
    "compression.type": "lz4",
    "queue.buffering.max.kbytes": BUFFER_KBYTES,
    "message.max.bytes": LARGEST_MESSAGE,
    "log_level": 0,
}
CONSUMER: Final = {
    "group.id": "barnabas-restore",
    "enable.auto.commit": False,
    "log_level": 0,
    # The end of a partition counts here, also behind an open transaction.
    "isolation.level": "read_uncommitted",
}


Ends = TypeVar("Ends")


class NotWritten(Exception):
    """A partition that cannot be written as planned; the text gives the reason."""


Record = tuple[int, int, bytes | None, bytes | None, Sequence[Mapping[str, Any]] | None]
"""A record to write: the partition, timestamp in ms, key, value and headers; a header has the items `key` and `value`.

The record is a plain tuple, because creating a named tuple takes as long as sending a record.
"""


class TopicWriter:
    """A writer that Spark sends to executors.

    For each partition, `bases` has the offset of the first restored record, `records` the number of records to restore,
    and `ends` the end offset that the driver read before it started the tasks. A batch of several records has at most
    `batch_bytes` bytes, so that it is not above the topic's max.message.bytes.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        bases: Mapping[int, int],
        records: Mapping[int, int],
        ends: Mapping[int, int],
        quiet_s: float = QUIET_S,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.bases = dict(bases)
        self.records = dict(records)
        self.ends = dict(ends)
        self.quiet_s = quiet_s
        self.batch_bytes = min(batch_bytes, BATCH_BYTES)

    def __call__(self, records: Iterable[Record], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Write records, which are sorted by partition and offset.

        Yield for each partition its number, how many records were written, and how many were there already. `is_again`
        is true if an earlier attempt of the task may have written some of the records. Raises NotWritten if another
        client has written to a partition, or if brokers refuse a record or do not answer.
        """
        own = {"bootstrap.servers": self.bootstrap, "batch.size": self.batch_bytes}
        producer = Producer({**own, **PRODUCER, **for_librdkafka()})
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
            producer.purge()  # Another try of the task writes the dropped records.
        return partition, written, there

    def _skip_what_is_there(self, partition: int, records: Iterator[Record], is_again: bool) -> int:
        """Skip the records that are already written, and return their number.

        If an earlier task may still write, first wait until nobody writes. Raises NotWritten if another client has
        written to the partition.
        """
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
                    f"{self.topic}-{partition} ends at offset {end}, but must end between {base} and "
                    f"{base + records_max}; another client has written to this partition"
                )
            last = None
            for _ in range(there):
                last = next(records)
            if last is not None and _kept(last) != _read(consumer, self.topic, partition, end - 1):
                raise NotWritten(
                    f"{self.topic}-{partition}: the record at offset {end - 1} is not from this restore: another "
                    "client has written to the partition"
                )
            return there
        finally:
            consumer.close()

    def _send(self, producer: Producer, partition: int, records: Iterable[Record]) -> int:
        """Pass the records to librdkafka, waiting while its queue is full, and return their number.

        Arguments are positional, because keywords would double the time of a call.
        """
        produce, topic, sent = producer.produce, self.topic, 0
        for sent, (_, timestamp_ms, key, value, headers) in enumerate(records, 1):  # noqa: B007  # `sent` is a count.
            # librdkafka's type stub does not allow headers without a value.
            own: Any = _headers(headers) if headers else None
            while True:
                try:
                    produce(topic, value, key, partition, None, None, timestamp_ms, own)
                    break
                except BufferError:
                    self._await_acknowledgement(producer, partition)
        return sent

    def _await_acknowledgement(self, producer: Producer, partition: int) -> None:
        """Wait until a broker acknowledges at least one record. Raises NotWritten if that takes longer than SILENT_S.

        A failed record is a fatal error of the producer, for which `poll` raises KafkaException.
        """
        waiting, deadline_s = len(producer), time.monotonic() + SILENT_S
        while len(producer) >= waiting > 0:
            if time.monotonic() > deadline_s:
                raise NotWritten(
                    f"{self.topic}-{partition}: no broker acknowledged a record for {SILENT_S:.0f} s; run the job again"
                )
            producer.poll(POLL_S)


def _reason(producer: Producer, error: KafkaError) -> str:
    """Return the reason of an error. For a fatal error, poll once more, because only that poll gives the reason."""
    if error.code() == KafkaError._FATAL:
        try:
            producer.poll(REASON_S)
        except KafkaException as fatal:
            return str(fatal.args[0].str())
    return error.str()


def _headers(headers: Iterable[Mapping[str, Any]]) -> list[tuple[str, bytes | None]]:
    return [(each["key"], each["value"]) for each in headers]


def _kept(record: Record) -> tuple[Any, ...]:
    """Return timestamp, key, value and headers of a record to write, to be compared with what `_read` returns."""
    _, timestamp_ms, key, value, headers = record
    return timestamp_ms, key, value, _headers(headers or ())


def _read(consumer: Consumer, topic: str, partition: int, offset: int) -> tuple[Any, ...] | None:
    """Return timestamp, key, value and headers of the record at an offset, or None if it cannot be read."""
    consumer.assign([TopicPartition(topic, partition, offset)])
    message = consumer.poll(TIMEOUT_S)
    if message is None or message.error() is not None or message.offset() != offset:
        return None
    return message.timestamp()[1], message.key(), message.value(), list(message.headers() or ())


def quiet_ends(topic: str, ends: Callable[[], Ends], quiet_s: float) -> Ends:
    """Return the end offsets of the topic once they have not changed for `quiet_s` seconds.

    Raises JobFailed if they still change after QUIET_SECONDS_MAX seconds: then another client is writing to the topic.
    """
    found, began, since = ends(), time.monotonic(), time.monotonic()
    while time.monotonic() - since < quiet_s:
        if time.monotonic() - began > QUIET_SECONDS_MAX:
            raise JobFailed(f"another client writes to {topic}; restore into a topic to which no other client writes")
        time.sleep(QUIET_POLL_S)
        now = ends()
        if now != found:
            found, since = now, time.monotonic()
    return found
