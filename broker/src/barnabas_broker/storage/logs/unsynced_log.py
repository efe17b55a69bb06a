"""A log with `flush.messages` that are not synced: nothing more of it is acknowledged before they are."""

from typing import Protocol

from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_core.topic_partition import TopicPartition


class UnsyncedLog(Protocol):
    """A `Log`, as far as it has to be synced."""

    topic_partition: TopicPartition
    unsynced_from: int | None

    def flush_job(self, offset: int | None = None) -> FlushJob | None:
        """What a thread has to run. StorageError."""
        ...

    def flushed(self, job: FlushJob) -> None:
        """Takes note that a thread has run the job."""
        ...

    def flush(self, offset: int | None = None) -> None:
        """Blocks until all is on the disk. StorageError."""
        ...


def sync_now(log: UnsyncedLog) -> None:
    """For who has no loop: blocks. StorageError."""
    log.flush()
