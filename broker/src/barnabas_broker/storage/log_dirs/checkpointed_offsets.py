"""The offsets of logs that a log dir writes to its checkpoints."""

from collections.abc import Callable

from barnabas_broker.storage.logs.log import Log
from barnabas_core.topic_partition import TopicPartition


def offset_of_each(
    logs: dict[TopicPartition, Log], offset_of: Callable[[Log], int | None]
) -> dict[TopicPartition, int]:
    """Return the offset of each log, without logs for which `offset_of` returns None.

    A thread may call this function while the event loop adds and removes logs, so the function copies the dictionary
    first, which is atomic. `list(logs.items())` is not atomic: its new tuples may start the garbage collector, during
    which the thread of the event loop may change the dictionary.
    """
    return {key: offset for key, log in logs.copy().items() if (offset := offset_of(log)) is not None}


def raised_start(log: Log) -> int | None:
    """Return the log start offset if it is above the base offset of the first segment, else None."""
    return log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None


def load_clean_offset(log: Log, checkpointed: int) -> bool:
    """Set `clean_until` of a log from its checkpoint; return True if the checkpointed offset is above the log's end.

    A log that ends below its checkpointed offset refuses appends until the checkpoint is rewritten.
    """
    log.compaction.ended(min(checkpointed, log.log_end_offset))
    if checkpointed > log.log_end_offset:
        log.known_producers.hold_back(until_checkpointed=True)
    return checkpointed > log.log_end_offset
