"""The periodic work on the logs; blocking calls run in threads, and changes of logs run on the event loop.

`DueSyncs` syncs logs of topics with `flush.messages`. Requests that arrive during a sync wait for the next one, which
covers all waiting requests.

`Truncations` completes truncations, because a failover may truncate hundreds of logs. A truncated log accepts no
appends until its truncation is complete. One write of the
checkpoint file is enough for all truncated logs of a log dir.

`LogEndReports` writes this broker's log end offsets to the metadata store (`metadata.log_ends`). It reports the log
ends of a partition that loses its leader soon, because an administrator may elect the live replica with the longest
log, and old reports could be wrong.

Compaction and the inspection of produced batches have a helper process each, which starts on first use. There are two,
because producers must not wait for a long compaction.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import chain
from typing import Final

from barnabas_broker.app.supervision import PeriodicTask, in_thread
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import HeldLog, LogEnds
from barnabas_broker.metadata.model import NO_LEADER, TopicDocument
from barnabas_broker.metadata.store.metadata_store import MetadataStore, StoreUnavailable
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.errors import DiskFull, LogDirFailed, StorageError
from barnabas_broker.storage.helper import Helper
from barnabas_broker.storage.inspection import BatchInspector
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.log_dir_loader import CutLog, cut_jobs, make_durable, sync_call
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_syncs import WaitingLog
from barnabas_broker.storage.logs.offset_lookup import last_stable_offset
from barnabas_broker.storage.logs.truncation import enforce_retention
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError
from barnabas_core.loop_turns import FairTurn, next_turn, slices
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[object, object, object]], object]
"""A function that starts a coroutine as a task."""


class _LogTasks:
    """Tasks that work on logs in threads; partitions learn of failures and results by `replicas`."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager, spawn: Spawn) -> None:
        self._logs = logs
        self._replicas = replicas
        self._spawn = spawn


class DueSyncs(_LogTasks):
    """The syncs of logs to disk that are due."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager, spawn: Spawn) -> None:
        super().__init__(logs, replicas, spawn)
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


class Truncations(_LogTasks):
    """The log truncations that are not complete yet, and the tasks that complete them."""

    def __init__(self, logs: LogManager, replicas: ReplicaManager, spawn: Spawn) -> None:
        super().__init__(logs, replicas, spawn)
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


FLUSH_CHECK_S: Final = 1.0
TRASH_CHECK_S: Final = 1.0
DISK_CHECK_S: Final = 1.0
REMOVED_AT_ONCE: Final = 100
"""The maximum number of files that one call in a thread removes, so that the supervisor sees progress in between."""


class LogTasks:
    """The periodic tasks for the logs of one log manager; `spawn` starts a coroutine as a task."""

    def __init__(
        self,
        logs: LogManager,
        replicas: ReplicaManager,
        clock: Clock,
        spawn: Spawn,
    ) -> None:
        self._logs = logs
        self._replicas = replicas
        self._clock = clock
        self._truncations = Truncations(logs, replicas, spawn)
        self._due_syncs = DueSyncs(logs, replicas, spawn)
        self._reads_logs = False
        """True while a thread reads whole logs, which takes long if the logs are large."""

    def table(self, config: BrokerConfig) -> list[PeriodicTask]:
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
            PeriodicTask("retention", retention_s, self.enforce_retention, min(first_s, retention_s)),
            *self._in_each("checkpoints", checkpoint_ms / 1000, self.checkpoint),
            *self._in_each("flushes", FLUSH_CHECK_S, self.flush),
            *self._in_each("topic ids", FLUSH_CHECK_S, self.sync_topic_ids),
            PeriodicTask("trash", TRASH_CHECK_S, self.empty_trash),
            PeriodicTask("disks", DISK_CHECK_S, self.check_disks, lasts=lambda: self._reads_logs),
            PeriodicTask("producer ids", expiry_s, self.expire_producers),
        ]

    def _in_each(self, name: str, period_s: float, run: Callable[[LogDir], Awaitable[None]]) -> list[PeriodicTask]:
        """Return a periodic task for each log dir, so that a hanging disk delays only the task of its own log dir."""
        return [PeriodicTask(f"{name} of {each.path}", period_s, partial(run, each)) for each in self._logs.log_dirs]

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

    async def check_disks(self) -> None:
        """Take failed log dirs offline, and bring repaired log dirs back online."""
        online = [each for each in self._logs.log_dirs if each.is_online]
        checks = [in_thread(self._threads_of(each), each.problems) for each in online]
        for error in chain.from_iterable(await asyncio.gather(*checks)):
            self._replicas.failures.log_dir_failed(error)
        self._replicas.failures.check_full_dirs()
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


REPORT_S: Final = 300.0
"""The seconds between two reports of all log ends."""
LEADERLESS_S: Final = 2.0
"""The seconds between checks whether a partition has lost its leader; if so, the broker reports its log ends."""


class LogEndReports:
    """The reporter of this broker's log end offsets to the controller.

    The reports are sent when the broker starts, periodically, and at a clean shutdown.
    """

    def __init__(self, broker_id: int, store: MetadataStore, image: MetadataImage, logs: LogManager) -> None:
        self._log_ends = LogEnds(broker_id, store, image, lambda: held_logs(logs, image), next_turn)
        self.begin_incarnation = self._log_ends.begin_incarnation
        self.admitted = self._log_ends.admitted
        self._broker_id = broker_id
        self._strays = logs.strays
        self._strays_reported = 0
        self._leaderless: dict[str, frozenset[int]] = {}
        """The partitions of this broker that have no leader, by topic."""
        self._is_due = False
        image.subscribe(self._image_changed)

    def periodic_tasks(self) -> list[PeriodicTask]:
        """Return the periodic tasks that report this broker's log end offsets to the controller."""
        return [
            PeriodicTask("log ends", REPORT_S, self.report),
            PeriodicTask("reports of log ends of partitions without a leader", LEADERLESS_S, self.report_leaderless),
        ]

    def _image_changed(self, change: ImageChange) -> None:
        for topic in change.deleted:
            self._leaderless.pop(topic.name, None)
        for topic in (*change.created, *change.changed):
            before, now = self._leaderless.pop(topic.name, frozenset()), self._leaderless_of(topic)
            if now:
                self._leaderless[topic.name] = now
            self._is_due |= not now <= before

    def _leaderless_of(self, topic: TopicDocument) -> frozenset[int]:
        states = enumerate(topic.partitions)
        return frozenset(n for n, state in states if state.leader == NO_LEADER and self._broker_id in state.replicas)

    async def report_leaderless(self) -> None:
        """Report the log ends to the controller if a report is necessary.

        That is so if a partition has lost its leader or the number of stray logs has changed since the last call.
        """
        if self._is_due or self._strays_reported != len(self._strays):
            self._strays_reported = len(self._strays)
            self._is_due = False
            await self.report()

    async def report(self) -> None:
        """Report the log ends; if the metadata store does not respond, the log ends are reported again later."""
        try:
            await self._log_ends.report()
        except StoreUnavailable as error:
            log.warning("the broker cannot report its log ends, because the metadata store does not respond: %s", error)


def held_logs(logs: LogManager, image: MetadataImage) -> Iterator[HeldLog]:
    """Yield the state of all online logs.

    A log without a stored topic id counts as a log of the current topic with the same name. If no topic has the name,
    the log is left out.
    """
    for where in logs.logs:
        held, document = logs.get(where), image.topics.get(where.topic)
        if held is None:  # The partition was removed while the caller waited.
            continue
        topic_id = held.topic_id or (document.topic_id if document is not None else None)
        if topic_id is not None:
            try:
                end = held.epochs.latest_epoch, held.log_end_offset
            except StorageError:  # The disk of the log has failed.
                continue
            yield HeldLog(where.topic, topic_id, where.partition, *end, logs.kept(held))


NOTHING_STABLE = -1
BATCH_MEMORY_BYTES = 768 * 1024 * 1024
"""The bytes of memory that a helper process needs besides its key map, mainly for the records of the largest batch."""


def make_inspector(timers: Timers, clock: Clock) -> BatchInspector:
    """Make the inspector of produced batches; the first batch that must be inspected starts its helper process."""
    return BatchInspector(Helper(timers, lambda: BATCH_MEMORY_BYTES), clock, asyncio.timeout)


def make_helper(timers: Timers, config: Callable[[], BrokerConfig]) -> Helper:
    """Make the helper process for compaction; `config` returns the current settings."""
    return Helper(timers, lambda: config().log_cleaner_dedupe_buffer_size + BATCH_MEMORY_BYTES)


def make_cleaner(
    logs: LogManager,
    replicas: ReplicaManager,
    helper: Helper,
    timers: Timers,
    clock: Clock,
    config: Callable[[], BrokerConfig],
) -> LogCleaner:
    """Make the cleaner of all logs; `config` returns the current settings.

    The cleaner compacts no record at or above the last stable offset or the high watermark in the checkpoint file.
    After a crash, the checkpoint file therefore tells which segments compaction may have replaced: only segments below
    the high watermark in the file.
    """

    def stable_offset(topic_partition: TopicPartition) -> int:
        try:
            partition = replicas.lookup.find(topic_partition.topic, None, topic_partition.partition)
            stable_offset = NOTHING_STABLE if partition.failure is not None else last_stable_offset(partition.log)
        except (ApiError, StorageError):  # The topic is being created or deleted, or its log has failed.
            return NOTHING_STABLE
        return min(stable_offset, logs.checkpointed_high_watermark(topic_partition))

    return LogCleaner(logs, helper, timers, clock, config, stable_offset, replicas.failures.log_failed)
