"""The periodic tasks on the logs; blocking calls run in threads, and changes of logs run on the event loop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from typing import Final

from barnabas_broker.app.chores import Chore, in_thread
from barnabas_broker.app.due_syncs import DueSyncs
from barnabas_broker.app.truncations import Truncations
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.errors import DiskFull, LogDirFailed, StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.log_dir_loader import sync_call
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import enforce_retention
from barnabas_core.clock import Clock
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.fair_turns import FairTurn, slices

log = logging.getLogger(__name__)

FLUSH_CHECK_S: Final = 1.0
TRASH_CHECK_S: Final = 1.0
DISK_CHECK_S: Final = 1.0
REMOVED_AT_ONCE: Final = 100
"""The maximum number of files that one call in a thread removes, so that the supervisor sees progress in between."""


class LogChores:
    """The periodic tasks for the logs of one log manager; `spawn` starts a coroutine as a task."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        clock: Clock,
        spawn: Callable[[Coroutine[object, object, object]], object],
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._truncations = Truncations(logs, replicas, spawn)
        self._due_syncs = DueSyncs(logs, replicas, spawn)
        self._reads_logs = False
        """True while a thread reads whole logs, which takes long if the logs are large."""

    def table(self, config: BrokerConfig) -> list[Chore]:
        """Return the periodic tasks for the logs."""
        checkpoint_ms = min(
            config.log_flush_offset_checkpoint_interval_ms,
            config.log_flush_start_offset_checkpoint_interval_ms,
            config.replica_high_watermark_checkpoint_interval_ms,
        )
        first_s = config.log_initial_task_delay_ms / 1000
        retention_s = config.log_retention_check_interval_ms / 1000
        expiry_s = config.producer_id_expiration_check_interval_ms / 1000
        return [
            Chore("retention", retention_s, self.enforce_retention, min(first_s, retention_s)),
            *self._in_each("checkpoints", checkpoint_ms / 1000, self.checkpoint),
            *self._in_each("flushes", FLUSH_CHECK_S, self.flush),
            *self._in_each("topic ids", FLUSH_CHECK_S, self.sync_topic_ids),
            Chore("trash", TRASH_CHECK_S, self.empty_trash),
            Chore("disks", DISK_CHECK_S, self.look_at_disks, lasts=lambda: self._reads_logs),
            Chore("producer ids", expiry_s, self.expire_producers),
        ]

    def _in_each(self, name: str, period_s: float, run: Callable[[LogDir], Awaitable[None]]) -> list[Chore]:
        """Return a periodic task for each log dir, so that a hanging disk delays only the task of its own log dir."""
        return [Chore(f"{name} of {each.path}", period_s, partial(run, each)) for each in self._logs.log_dirs]

    async def enforce_retention(self) -> None:
        """Delete segments that exceed retention by time or size, or lie below the log start offset.

        Segments with records above the high watermark are kept.
        """
        async for each in FairTurn(self._clock).over(self._logs.online_logs()):
            if self._logs.get(each.topic_partition) is each:
                try:
                    enforce_retention(each, self._clock.now_ms())
                except StorageError as error:
                    self._replicas.failures.log_failed(each.topic_partition, error)

    async def checkpoint(self, log_dir: LogDir) -> None:
        """Write recovery points, log start offsets and high watermarks to the checkpoint files of a log dir."""
        for call in log_dir.checkpoint_calls(self.high_watermark_of) if log_dir.is_online else ():
            try:
                await in_thread(self._threads_of(log_dir), call)
            except LogDirFailed as error:
                self._replicas.failures.log_dir_failed(error)
            except StorageError as error:
                log.error("a checkpoint could not be written: %s", error)

    def _threads_of(self, log_dir: LogDir) -> Executor:
        return self._logs.disk_threads.of(log_dir.path)

    async def flush(self, log_dir: LogDir) -> None:
        """Flush rolled segments and advance the logs' recovery points; retry failed truncations and syncs."""
        self._truncations.begin()
        self._due_syncs.try_again()
        now_ms = self._clock.now_ms()
        async for each in FairTurn(self._clock).over(self._logs.unflushed_logs()):
            is_current = self._logs.get(each.topic_partition) is each  # Another log may have replaced this log.
            if is_current and each.log_dir == log_dir.path:
                await self._flush(each, now_ms)

    async def _flush(self, each: Log, now_ms: int) -> None:
        try:
            job = each.due_flush(now_ms)
            if job is not None:
                await in_thread(each.threads, job.run)
                each.syncs.flushed(job, each.log_end_offset)
        except StorageError as error:
            self._replicas.failures.log_failed(each.topic_partition, error)

    async def sync_topic_ids(self, log_dir: LogDir) -> None:
        """Sync the topic ids of new logs, so that a log keeps its topic id after a power failure."""
        topic_ids = self._logs.topic_ids
        async for each in FairTurn(self._clock).over(topic_ids.take_unsynced(log_dir.path)):
            if self._logs.get(each.topic_partition) is each:
                try:
                    await in_thread(each.threads, sync_call(each))
                except DiskFull:
                    topic_ids.sync_later(each)
                except StorageError as error:
                    self._replicas.failures.log_failed(each.topic_partition, error)

    async def empty_trash(self) -> None:
        """Remove the files of deleted segments and logs after file.delete.delay.ms."""
        paths = self._logs.due_deletions(self._clock.now_ms())
        for log_dir in self._logs.log_dirs:
            here = [path for path in paths if path.startswith(f"{log_dir.path}/")]
            for some in slices(here, lambda _: 1, REMOVED_AT_ONCE, REMOVED_AT_ONCE):
                await in_thread(self._threads_of(log_dir), partial(self._logs.remove_files, some))

    async def look_at_disks(self) -> None:
        """Take failed log dirs offline, and bring repaired log dirs back online."""
        online = [each for each in self._logs.log_dirs if each.is_online]
        checks = [in_thread(self._threads_of(each), each.problems) for each in online]
        for error in chain.from_iterable(await asyncio.gather(*checks)):
            self._replicas.failures.log_dir_failed(error)
        self._replicas.failures.look_at_full_dirs()
        if not self._replicas.failures.are_going_offline:
            failed_dirs = [each for each in self._logs.log_dirs if not each.is_online]
            is_back = bool(failed_dirs) and await self._probe(failed_dirs)
            await self._replicas.sweep(is_due=is_back)  # Topics may have been deleted while the log dirs were offline.
        self._replicas.bring_back()

    async def _probe(self, failed_dirs: Sequence[LogDir]) -> bool:
        """Load the logs of failed log dirs that work again; return True if at least one log dir works again."""
        self._reads_logs = True
        try:
            return await in_thread(self._threads_of(failed_dirs[0]), lambda: self._logs.probe(failed_dirs))
        finally:
            self._reads_logs = False

    async def expire_producers(self) -> None:
        """Remove idempotent producers that have not written for producer.id.expiration.ms."""
        async for each in FairTurn(self._clock).over(self._logs.online_logs()):
            each.known_producers.expire(self._clock.now_ms())

    def high_watermark_of(self, each: Log) -> int | None:
        """Return the high watermark to store in the checkpoint file for a log; called in a thread.

        Return None while no Partition object has the log; the file then keeps its entry.
        """
        partition = self._replicas.lookup.hosted(each.topic_partition)
        return each.high_watermark if partition is not None and partition.log is each else None
