"""The last archived record of each partition as the topic has it, to notice a log that lost its tail."""

import time
import zlib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from barnabas_jobs.credentials import for_librdkafka
from barnabas_jobs.planning.errors import JobFailed

TIMEOUT_S: Final = 30.0
CONSUMER: Final = {
    "group.id": "barnabas-archive",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_uncommitted",
    "log_level": 0,
    # A broker sends at least one batch of each partition, and only one record is needed.
    "fetch.message.max.bytes": 1024,
}
GONE: Final = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)


class LastRecord(NamedTuple):
    """The leader epoch of a record, which is None in old formats, and the checksum of its content."""

    epoch: int | None
    checksum: int


def last_records(bootstrap: str, topic: str, ends: Mapping[int, int]) -> dict[int, LastRecord]:
    """Return the record at the offset before each end; partitions without a record at that offset are left out.

    Such an offset may be that of a transaction marker, or its record was compacted or deleted. Raises JobFailed if no
    broker answers.
    """
    wanted = {partition: end - 1 for partition, end in ends.items() if end > 0}
    if not wanted:
        return {}
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER, **for_librdkafka()})
    try:
        consumer.assign([TopicPartition(topic, *place) for place in wanted.items()])
        return _read(consumer, topic, wanted)
    except KafkaException as error:
        raise JobFailed(f"topic={topic}: the last archived records cannot be read: {error.args[0].str()}") from error
    finally:
        consumer.close()


def _read(consumer: Consumer, topic: str, wanted: Mapping[int, int]) -> dict[int, LastRecord]:
    found: dict[int, LastRecord] = {}
    waiting, deadline_s = set(wanted), time.monotonic() + TIMEOUT_S
    while waiting:
        message = consumer.poll(max(0.0, deadline_s - time.monotonic()))
        if message is None:
            raise JobFailed(
                f"topic={topic}: the partitions {sorted(waiting)} sent no record within {TIMEOUT_S:.0f} s; "
                "run the job again"
            )
        partition: Any = message.partition()
        error = message.error()
        if error is not None and error.code() not in GONE:
            raise KafkaException(error)
        if partition in waiting:
            waiting.discard(partition)
            consumer.incremental_unassign([TopicPartition(topic, partition)])
            if error is None and message.offset() == wanted[partition]:
                found[partition] = LastRecord(message.leader_epoch(), _checksum(message))
    return found


def _checksum(message: Message) -> int:
    """Return the CRC-32 of timestamp, key, value and headers."""
    content = (message.timestamp()[1], message.key(), message.value(), message.headers() or [])
    return zlib.crc32(msgspec.msgpack.encode(content))
