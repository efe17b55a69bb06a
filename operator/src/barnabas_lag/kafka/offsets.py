"""The requests for the start, end and last stable offsets of logs, and for the first record at or after a time."""

from collections.abc import Mapping

from kafka.protocol.consumer import ListOffsetsRequest

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import Asking
from barnabas_kafka.batches import ISOLATION_VERSION
from barnabas_kafka.log_offsets import EARLIEST, LATEST, NO_OFFSET, LogOffset, log_offsets
from barnabas_lag.evaluation.history import Question
from barnabas_lag.evaluation.readings import PartitionReading
from barnabas_lag.evaluation.timeline import Found

Partitions = Mapping[TopicPartition, PartitionReading]


def with_stable_offsets(asking: Asking, partitions: Partitions) -> dict[TopicPartition, PartitionReading]:
    """Return the partitions, with the last stable offset if the leader reports it."""
    if not asking.supports(ListOffsetsRequest, ISOLATION_VERSION):
        return dict(partitions)
    latest = dict.fromkeys(partitions, LATEST)
    stable = log_offsets(asking, lambda each: partitions[each].leader, latest, committed=True)
    return {
        each: reading._replace(stable=stable[each].offset) if each in stable else reading
        for each, reading in partitions.items()
    }


def with_ends(asking: Asking, partitions: Partitions) -> dict[TopicPartition, PartitionReading]:
    """Return the partitions, with the start and end offsets if the leader reports both."""
    oldest = _log_offsets(asking, partitions, dict.fromkeys(partitions, EARLIEST))
    ends = _log_offsets(asking, partitions, dict.fromkeys(partitions, LATEST))
    return {
        each: reading._replace(oldest=oldest[each].offset, end=ends[each].offset)
        if each in oldest and each in ends
        else reading
        for each, reading in partitions.items()
    }


def answers(
    asking: Asking, partitions: Partitions, questions: Mapping[TopicPartition, Question]
) -> dict[TopicPartition, Found | None]:
    """Return, for each partition in `questions`, the first record at or after `time_s`; None if there is none.

    Partitions whose leader does not answer are left out.
    """
    asked = {each: int(question.time_s * 1000) for each, question in questions.items()}
    return {
        each: Found(found.offset, found.timestamp_ms / 1000) if found.offset != NO_OFFSET else None
        for each, found in _log_offsets(asking, partitions, asked).items()
    }


def _log_offsets(
    asking: Asking, partitions: Partitions, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LogOffset]:
    return log_offsets(asking, lambda each: partitions[each].leader, timestamps_ms)
