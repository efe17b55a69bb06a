"""The syncs of logs of topics with `flush.messages`, in threads.

Requests that arrive during a sync wait for the next sync, which covers all waiting requests.
"""

from collections.abc import Callable, Coroutine

from barnabas_broker.app.chores import in_thread
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.errors import DiskFull, StorageError
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log_syncs import WaitingLog


class DueSyncs:
    """The syncs of logs to disk that are due; `spawn` starts a coroutine as a task."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        spawn: Callable[[Coroutine[object, object, object]], object],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._spawn = spawn
        self._under_way: set[WaitingLog] = set()
        self._refused: set[WaitingLog] = set()
        """The logs with a sync that failed because the disk was full."""
        logs.on_sync_due = self._begin

    def try_again(self) -> None:
        """Retry the syncs that failed because a disk was full.

        Without a retry, a follower would append nothing more, because its log must be synced first.
        """
        refused, self._refused = self._refused, set()
        for log in refused:
            self._begin(log)

    def _begin(self, log: WaitingLog) -> None:
        if log not in self._under_way:
            self._under_way.add(log)
            self._spawn(self._sync(log))

    async def _sync(self, log: WaitingLog) -> None:
        """Sync a log until its records are synced or another log replaces it; then complete the waiting requests."""
        topic_partition = log.topic_partition
        try:
            while log.syncs.unsynced_from is not None and self._logs.get(topic_partition) is log:
                job = log.syncs.flush_job(log.log_end_offset)
                if job is not None:
                    await in_thread(self._logs.disk_threads.of(job.log_dir), job.run)
                    log.syncs.flushed(job, log.log_end_offset)
        except StorageError as error:
            if isinstance(error, DiskFull):
                self._refused.add(log)
            self._replicas.failures.log_failed(topic_partition, error)
        finally:
            self._under_way.discard(log)
        self._replicas.synced(topic_partition)
