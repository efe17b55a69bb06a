"""Lookups of logs in the log dirs, and of what they have kept."""

from collections.abc import Iterable

from barnabas_broker.storage.log_dirs.kept_records import Kept
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.logs.log import Log
from barnabas_core.topic_partition import TopicPartition


def online_log(log_dirs: Iterable[LogDir], topic_partition: TopicPartition) -> Log | None:
    """Return the log of a partition, or None if no online log dir has it."""
    for log_dir in log_dirs:
        log = log_dir.logs.get(topic_partition)
        # An offline log dir may list logs that a thread is still loading; they must not be used yet.
        if log is not None and log_dir.is_online:
            return log
    return None


def kept_by(log_dirs: Iterable[LogDir], log: Log) -> Kept:
    """Return SOME if the log may have lost acknowledged records, SYNCED if only unacknowledged ones, otherwise ALL."""
    log_dir = next(each for each in log_dirs if each.path == log.log_dir)
    return log_dir.kept.of(log.topic_partition, log.log_end_offset)
