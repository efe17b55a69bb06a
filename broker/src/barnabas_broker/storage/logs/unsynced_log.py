"""A log with `flush.messages` that are not synced: nothing more of it is acknowledged before they are."""

from typing import Protocol

from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.logs.log_syncs import LogSyncs
from barnabas_core.topic_partition import TopicPartition


class UnsyncedLog(Protocol):
    """The part of a `Log` that syncs it."""

    topic_partition: TopicPartition
    syncs: LogSyncs

    def flush_job(self, offset: int | None = None) -> FlushJob | None:
        """Return what a thread has to run. StorageError."""
        ...

    def flushed(self, job: FlushJob) -> None:
        """Note that a thread has run the job."""
        ...

    def flush(self, offset: int | None = None) -> None:
        """Block until all is on the disk. StorageError."""
        ...


def sync_now(log: UnsyncedLog) -> None:
    """Sync at once, where there is no loop: blocks. StorageError."""
    log.flush()
