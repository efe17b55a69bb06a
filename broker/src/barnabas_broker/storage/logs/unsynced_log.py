"""A log that has reached `flush.messages`, and acknowledges no more records before a sync."""

from typing import Protocol

from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.logs.log_syncs import LogSyncs
from barnabas_core.topic_partition import TopicPartition


class UnsyncedLog(Protocol):
    """The attributes of a `Log` that are needed to sync the log."""

    topic_partition: TopicPartition
    syncs: LogSyncs

    def flush_job(self, offset: int | None = None) -> FlushJob | None:
        """Return a sync of all records, or of those below `offset`, to run in a thread; None if all are synced.

        Raises StorageError.
        """
        ...

    def flushed(self, job: FlushJob) -> None:
        """Raise the recovery point after a thread has run the job."""
        ...

    def flush(self, offset: int | None = None) -> None:
        """Block until all records, or those below `offset`, are synced. Raises StorageError."""
        ...


def sync_now(log: UnsyncedLog) -> None:
    """Sync the log at once, for callers without an event loop. The call blocks. Raises StorageError."""
    log.flush()
