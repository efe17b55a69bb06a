"""Ends of logs, and the first record since a time, from the partitions' leaders."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.history import Question
from barnabas_lag.evaluation.readings import NO_LEADER, PartitionReading
from barnabas_lag.evaluation.timeline import Found
from barnabas_lag.kafka.asking import Asking
from barnabas_lag.kafka.batches import list_offsets

Item = TypeVar("Item")

LATEST: Final = -1
EARLIEST: Final = -2
NO_OFFSET: Final = -1
Partitions = Mapping[TopicPartition, PartitionReading]


class Told(NamedTuple):
    """An answer: the offset, and the record's timestamp in milliseconds where there is one."""

    offset: int
    timestamp_ms: int


def with_ends(asking: Asking, partitions: Partitions) -> dict[TopicPartition, PartitionReading]:
    """The same partitions, with their oldest offset and their end where a leader tells both."""
    oldest = _told(asking, partitions, dict.fromkeys(partitions, EARLIEST))
    ends = _told(asking, partitions, dict.fromkeys(partitions, LATEST))
    return {
        each: reading._replace(oldest=oldest[each].offset, end=ends[each].offset)
        if each in oldest and each in ends
        else reading
        for each, reading in partitions.items()
    }


def answers(
    asking: Asking, partitions: Partitions, questions: Mapping[TopicPartition, Question]
) -> dict[TopicPartition, Found | None]:
    """The first record since each of these times; None where there is none. Of leaders that do not answer nothing."""
    asked = {each: int(question.time_s * 1000) for each, question in questions.items()}
    return {
        each: Found(told.offset, told.timestamp_ms / 1000) if told.offset != NO_OFFSET else None
        for each, told in _told(asking, partitions, asked).items()
    }


def _told(
    asking: Asking, partitions: Partitions, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Told]:
    known = {each: each for each in timestamps_ms}
    told: dict[TopicPartition, Told] = {}
    requests = by_broker(timestamps_ms, lambda each: partitions[each].leader)
    batched = {leader: list_offsets({each: timestamps_ms[each] for each in some}) for leader, some in requests.items()}
    for broker_id, request, answer in asking.ask(batched):
        parts = [
            (TopicPartition(topic.name, part.partition_index), part)
            for topic in answer.topics
            for part in topic.partitions
        ]
        for partition, part in parts:
            if part.error_code == ErrorCode.NONE:
                told[known[partition]] = Told(part.offset, part.timestamp)
        asking.refused(
            request, broker_id, ((part.error_code, f"{each.topic}-{each.partition}") for each, part in parts)
        )
    return told


def by_broker(items: Iterable[Item], broker_of: Callable[[Item], int]) -> dict[int, list[Item]]:
    """Whom to ask about what; nobody about what has no broker."""
    found: dict[int, list[Item]] = {}
    for item in items:
        if (broker_id := broker_of(item)) != NO_LEADER:
            found.setdefault(broker_id, []).append(item)
    return found
