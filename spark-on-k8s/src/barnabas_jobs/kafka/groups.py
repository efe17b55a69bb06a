"""Consumer groups: which of them have members, and the offsets that they have committed."""

import time
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
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

from barnabas_jobs.credentials import for_librdkafka
from barnabas_jobs.kafka.admin_client import TIMEOUT_S, Asking, MembersOnly, OffsetsHidden, few_in_flight
from barnabas_jobs.planning.archived import GroupOffset
from barnabas_jobs.planning.errors import JobFailed

LOADING: Final = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)
"""The errors of a broker that has just started, or has just begun to lead the offsets of groups."""
PAUSE_S: Final = 0.2
WITHOUT_MEMBERS: Final = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)


class Groups(Asking):
    """The consumer groups of one cluster."""

    def with_members(self) -> set[str]:
        """Return the groups that have members, or are about to get some."""
        return {each.group_id for each in self._listed() if each.state not in WITHOUT_MEMBERS}

    def committed(self, topic: str, partitions: Collection[int], groups: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the offsets that each of the groups has committed in these partitions, by partition."""
        asked = self._asked(topic, partitions, groups)
        return {group: _offsets(self._answer(future, f"group={group}")) for group, future in asked}

    def all_committed(self, topic: str, partitions: Collection[int]) -> tuple[GroupOffset, ...]:
        """Return the committed offsets of all groups in these partitions.

        Groups whose offsets brokers do not show, such as share groups, are left out. Raises JobFailed if a coordinator
        does not answer, because a commit without the offsets of its groups would lose them.
        """
        found: list[GroupOffset] = []
        for group, future in self._asked(topic, partitions, [each.group_id for each in self._listed()]):
            with suppress(OffsetsHidden):
                answer = self._answer(future, f"group={group}")
                found += [GroupOffset(group, *place) for place in _offsets(answer).items()]
        return tuple(sorted(found))

    def _listed(self) -> Sequence[Any]:
        """Return all groups. Raises JobFailed if a broker does not list its own in time, as while it loads them."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            future = self._admin.list_consumer_groups(request_timeout=TIMEOUT_S)
            found: Any = self._answer(future, "listing groups")
            if not found.errors:
                groups: Sequence[Any] = found.valid
                return groups
            if time.monotonic() > deadline_s or any(each.code() not in LOADING for each in found.errors):
                raise self._failed(KafkaException(found.errors[0]), "listing groups")
            time.sleep(PAUSE_S)

    def _asked(self, topic: str, partitions: Collection[int], groups: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Ask for the committed offsets of groups, and yield each group with its future answer."""
        places = [TopicPartition(topic, partition) for partition in sorted(partitions)]
        asked = ((group, [ConsumerGroupTopicPartitions(group, list(places))]) for group in groups if places)
        list_offsets = partial(self._admin.list_consumer_group_offsets, request_timeout=TIMEOUT_S)
        return few_in_flight((group, list_offsets(request)[group]) for group, request in asked)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
        """Commit offsets for a group without members. Return False, and commit nothing, if the group has members."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in sorted(offsets.items())]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        future: Any = self._admin.alter_consumer_group_offsets(wanted, request_timeout=TIMEOUT_S)[group]
        about = f"committing offsets of group={group} in topic={topic}"
        try:
            places = self._answer(future, about).topic_partitions
        except MembersOnly:
            return False
        failures = [self._failed(KafkaException(each.error), about) for each in places if each.error is not None]
        if any(isinstance(each, MembersOnly) for each in failures):
            return False
        for failure in failures:
            raise failure
        return True


def _offsets(answer: Any) -> dict[int, int]:
    """Return the committed offsets in an answer, by partition."""
    return {each.partition: each.offset for each in answer.topic_partitions if each.offset >= 0 and each.error is None}


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
