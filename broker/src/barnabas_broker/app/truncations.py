"""The completion of log truncations, in threads, because a failover may truncate hundreds of logs.

A truncated log accepts no appends until the truncation is complete. One write of the checkpoint file is enough for all
truncated logs of a log dir.
"""

import logging
from collections.abc import Callable, Coroutine
from functools import partial

from barnabas_broker.app.chores import in_thread
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.errors import DiskFull, LogDirFailed, StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.log_dir_loader import CutLog, cut_jobs, make_durable
from barnabas_broker.storage.log_dirs.log_manager import LogManager

log = logging.getLogger(__name__)


class Truncations:
    """The log truncations that are not complete yet, and the tasks that complete them."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        spawn: Callable[[Coroutine[object, object, object]], object],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._spawn = spawn
        self._under_way: set[LogDir] = set()
        logs.truncated.on_added = lambda _: self.begin()

    def begin(self) -> None:
        """Start one task per log dir to complete its unfinished truncations.

        The method is called after every truncation, and every second.
        """
        if len(self._logs.truncated):
            for log_dir in self._logs.log_dirs:
                if log_dir.is_online and log_dir not in self._under_way:
                    self._under_way.add(log_dir)
                    self._spawn(self._complete_all(log_dir))

    async def _complete_all(self, log_dir: LogDir) -> None:
        try:
            while log_dir.is_online and await self._complete(log_dir):
                pass
        finally:
            self._under_way.discard(log_dir)

    async def _complete(self, log_dir: LogDir) -> bool:
        """Complete the waiting truncations of a log dir; return True if there were any and none has failed."""
        cut_logs = self._logs.truncated.take(log_dir)
        if not cut_logs:
            return False
        try:
            if any(cut.awaits_checkpoint for cut in cut_logs):
                work = partial(make_durable, cut_jobs(cut_logs), log_dir)
                await in_thread(self._logs.disk_threads.of(log_dir.path), work)
        except StorageError as error:
            self._logs.truncated.put_back(cut_logs)
            if isinstance(error, LogDirFailed):
                self._replicas.failures.log_dir_failed(error)
            else:
                log.error(
                    "the truncation of %d logs failed, and is tried again; until then these logs accept no appends: %s",
                    len(cut_logs),
                    error,
                )
            return False
        return all([await self._reload(cut) for cut in cut_logs if cut.is_current])

    async def _reload(self, cut: CutLog) -> bool:
        """Load the producer state of the log; return False if the disk failed or is full."""
        try:
            replay = cut.log.producer_replay()
            await in_thread(self._logs.disk_threads.of(cut.log.log_dir), replay.run)
            cut.reloaded(replay)
        except StorageError as error:
            if isinstance(error, DiskFull):
                self._logs.truncated.put_back([cut])
            if cut.is_current:
                self._replicas.failures.log_failed(cut.log.topic_partition, error)
            return False
        return True
