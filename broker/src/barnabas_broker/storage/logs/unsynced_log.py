"""A log that has reached `flush.messages`, and acknowledges no more records before a sync."""

from typing import Protocol

from barnabas_broker.storage.logs.log_syncs import LogSyncs
from barnabas_core.topic_partition import TopicPartition


class UnsyncedLog(Protocol):
    """The attributes of a `Log` that are needed to sync the log."""

    topic_partition: TopicPartition
    syncs: LogSyncs
    log_end_offset: int

    def flush(self) -> None:
        """Block until all records are synced. Raises StorageError."""
        ...


def sync_now(log: UnsyncedLog) -> None:
    """Sync the log at once, for callers without an event loop. The call blocks. Raises StorageError."""
    log.flush()
