"""The entries of a log dir's offset checkpoints for its logs."""

from collections.abc import Callable

from barnabas_broker.storage.logs.log import Log
from barnabas_core.topic_partition import TopicPartition


def offset_of_each(
    logs: dict[TopicPartition, Log], offset_of: Callable[[Log], int | None]
) -> dict[TopicPartition, int]:
    """An offset of each log that has one. In a thread, while the loop adds logs and takes some away.

    A copy is made in one go; a list of pairs is not, for each is an object that the collector may come upon.
    """
    return {key: offset for key, log in logs.copy().items() if (offset := offset_of(log)) is not None}


def raised_start(log: Log) -> int | None:
    """Return the log start offset if it is above the base of the first segment, which then cannot show it."""
    return log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None
