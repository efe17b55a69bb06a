"""Consumer groups: which of them have members, and the offsets that they have committed."""

import time
import zlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from barnabas_jobs.credentials import for_librdkafka
from barnabas_jobs.kafka.topics import ASKING
from barnabas_jobs.planning.errors import JobFailed

TIMEOUT_S: Final = 30.0
IN_FLIGHT: Final = 50
"""The largest number of requests in flight; each request is about one group."""
WITHOUT_MEMBERS: Final = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
OF_MEMBERS: Final = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION)
"""The errors of a broker for a commit of a group in which only members may commit."""


class Groups:
    """The consumer groups of one cluster. Requests raise JobFailed if no broker answers, or one returns an error."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **ASKING, **for_librdkafka()})

    def with_members(self) -> set[str]:
        """Return the groups that have members, or are about to get some."""
        found: Any = self._answer(self._admin.list_consumer_groups(request_timeout=TIMEOUT_S), "listing groups")
        for error in found.errors:
            raise self._failed(error, "listing groups")
        return {each.group_id for each in found.valid if each.state not in WITHOUT_MEMBERS}

    def committed(self, topic: str, partitions: Collection[int], groups: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the offsets that each of the groups has committed in these partitions, by partition."""
        places = [TopicPartition(topic, partition) for partition in sorted(partitions)]
        found = dict[str, dict[int, int]]()
        waiting = list(groups) if places else []
        for first in range(0, len(waiting), IN_FLIGHT):
            asked = {
                group: self._admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group, list(places))], request_timeout=TIMEOUT_S
                )[group]
                for group in waiting[first : first + IN_FLIGHT]
            }
            for group, future in asked.items():
                answer: Any = self._answer(future, f"group={group}")
                found[group] = {each.partition: each.offset for each in answer.topic_partitions if each.offset >= 0}
        return found

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
        """Commit offsets for a group without members. Return False, and commit nothing, if the group has members."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in sorted(offsets.items())]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        future = self._admin.alter_consumer_group_offsets(wanted, request_timeout=TIMEOUT_S)[group]
        doing = f"committing offsets of group={group} in topic={topic}"
        try:
            answer: Any = future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in OF_MEMBERS:
                return False
            raise self._failed(error.args[0], doing) from error
        except TimeoutError as error:
            raise self._silent() from error
        errors = [each.error for each in answer.topic_partitions if each.error is not None]
        if any(error.code() in OF_MEMBERS for error in errors):
            return False
        for reason in errors:
            raise self._failed(reason, doing)
        return True

    def _answer(self, future: Any, doing: str) -> Any:
        try:
            return future.result(TIMEOUT_S)
        except KafkaException as error:
            raise self._failed(error.args[0], doing) from error
        except TimeoutError as error:
            raise self._silent() from error

    def _failed(self, error: KafkaError, doing: str) -> JobFailed:
        return JobFailed(f"{doing}: the cluster at {self._bootstrap} answered: {error.str()}")

    def _silent(self) -> JobFailed:
        return JobFailed(f"bootstrap={self._bootstrap}: no broker answered within {TIMEOUT_S:.0f} s")


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
