"""The logs of a broker in all its log dirs. If a log dir fails, the others stay in use.

Methods that block or run in a thread say so; all other methods run on the event loop. Some methods return functions
that block and that the caller runs in a thread. The timers of the application call the methods for periodic work.

The choice among logs of one partition in several log dirs, because only one log can be used. A power failure may
restore the directory of a deleted topic although another log dir already has the log of a newer topic of that name,
because the two directories are synced independently.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from uuid import UUID
from weakref import WeakMethod

import msgspec
from msgspec.structs import replace

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import NO_EPOCH, NO_INCARNATION, LastIncarnation
from barnabas_broker.storage.disk.files import FileSystem, remove_all
from barnabas_broker.storage.errors import LogDirFailed, LogDirRefused, StorageError, disk_errors
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity, HighWatermarkOf, Kept, LogDir, online_log
from barnabas_broker.storage.log_dirs.log_dir_loader import (
    NO_TOPICS,
    LoadProgress,
    LogDirLoader,
    StrayLogs,
    TopicIds,
    TopicLookup,
    TruncatedLogs,
    marked_directory,
)
from barnabas_broker.storage.log_dirs.replica_moves import LogDirChoice, ReplicaMoves
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import close_logs, open_log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment, LogPlace, WaitingLog, sync_now
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)


def finish_interrupted_moves(
    environment: LogEnvironment, log_dir: str, names: Iterable[str], log_dirs: Sequence[str]
) -> dict[TopicPartition, str]:
    """Finish the interrupted moves to a log dir; return each partition to move again, with the path of the log dir.

    All log dirs must be online, because an offline log dir does not show which logs it has. Raises StorageError.
    """
    resumed: dict[TopicPartition, str] = {}
    for name in names:
        parsed = checkpoints.parse_partition_dir(name)
        if parsed and parsed.state == checkpoints.FUTURE_DIR:
            directory = f"{log_dir}/{name}"
            with disk_errors(log_dir, directory):
                if _is_resumed(environment, parsed.topic_partition, directory, log_dirs):
                    resumed[parsed.topic_partition] = log_dir
    return resumed


def _is_resumed(
    environment: LogEnvironment, topic_partition: TopicPartition, copy: str, log_dirs: Sequence[str]
) -> bool:
    """Finish an interrupted move; return True if the log has to be moved again.

    If the original log still exists, the copy is deleted and the log has to be moved again. Otherwise a complete copy
    becomes the log, and an incomplete copy is renamed to `-stray`, because it must not count as the log.
    """
    files = environment.files
    if any(files.exists(f"{each}/{topic_partition}") for each in log_dirs):
        environment.trash.add(copy, 0)
        return True
    if files.exists(f"{copy}/{checkpoints.LEADER_EPOCHS}"):  # A move writes this file last, so the copy is complete.
        files.rename(copy, f"{copy.rpartition('/')[0]}/{topic_partition}")
    else:
        stray = copy.removesuffix(checkpoints.FUTURE_DIR) + checkpoints.STRAY_DIR
        files.rename(copy, stray)
        _logger.error("an unfinished copy of a log that no longer exists was renamed to %s", stray)
    return False


def superfluous_logs(logs: Iterable[Log], assigned: Callable[[UUID, int], TopicPartition | None]) -> list[Log]:
    """Return the logs that must not be used, where several log dirs have a log of the same partition.

    The log to use is the log whose topic id is in the metadata or, if there is none, the longest log.
    """

    def worth(log: Log) -> tuple[bool, int]:
        partition = log.topic_partition
        is_known = log.topic_id is not None and assigned(log.topic_id, partition.partition) == partition
        return is_known, log.log_end_offset

    by_partition: dict[TopicPartition, list[Log]] = defaultdict(list)
    for log in logs:
        by_partition[log.topic_partition].append(log)
    return [log for several in by_partition.values() for log in sorted(several, key=worth)[:-1]]


class LogManagerSettings(msgspec.Struct, frozen=True):
    """The broker's settings for the log manager, such as `log.dirs`."""

    log_dirs: Sequence[str]
    placement: str = "fewest-partitions"
    headroom_bytes: int = 0


class LogManager:
    """The logs of a broker. `config_of` returns a topic's settings by its name.

    `identity` is the cluster id and node id that must be in the meta.properties of each log dir.
    """

    def __init__(
        self,
        environment: LogEnvironment,
        clock: Clock,
        settings: LogManagerSettings,
        identity: BrokerIdentity,
        config_of: Callable[[str], LogConfig],
        topics: TopicLookup = NO_TOPICS,
    ) -> None:
        self.log_dirs = [LogDir(environment.files, path) for path in settings.log_dirs]
        self.truncated = TruncatedLogs()
        truncated = WeakMethod(self._truncated)  # A strong reference would be a cycle and keep the log dirs locked.
        self.on_sync_due: Callable[[WaitingLog], object] = sync_now
        """The callback for a log that has to be synced because of `flush.messages`."""
        due = WeakMethod(self._sync_due)
        self._environment = replace(
            environment,
            truncated=lambda log: (notify := truncated()) and notify(log),
            sync_due=lambda log: (notify := due()) and notify(log),
        )
        self.disk_threads = environment.disk_threads
        self._clock = clock
        self._settings = settings
        self._identity = identity
        self._assigned = topics.assigned
        self.strays = StrayLogs(self._environment, clock, self.log_dirs)
        self.topic_ids = TopicIds(topics)
        self._loader = LogDirLoader(
            self._environment, clock, self.log_dirs, config_of, self.strays, self.topic_ids, self.truncated
        )
        self._choice = LogDirChoice(self.log_dirs, clock, settings.placement, settings.headroom_bytes)
        self.moves = ReplicaMoves(self._environment, clock, self._choice, self.log_dirs)

    @property
    def files(self) -> FileSystem:
        """The interface to the files of all log dirs."""
        return self._environment.files

    @property
    def logs(self) -> dict[TopicPartition, Log]:
        """The logs in online log dirs, by partition."""
        return {key: log for log_dir in self.log_dirs if log_dir.is_online for key, log in log_dir.logs.items()}

    def online_logs(self) -> list[Log]:
        """Return the online logs as a list, which does not change while the caller iterates over it."""
        return [log for log_dir in self.log_dirs if log_dir.is_online for log in log_dir.logs.values()]

    def unflushed_logs(self) -> list[Log]:
        """Return the logs that may have records to sync; the `due_flush` of each log tells whether a sync is due."""
        unflushed, all_are_here = self._environment.unflushed, all(each.is_online for each in self.log_dirs)
        logs = {each: self.get(each) for each in list(unflushed)}
        for topic_partition in [each for each, log in logs.items() if log is None and all_are_here]:
            unflushed.pop(topic_partition, None)  # No log dir has the log, and all are online, so it was deleted.
        return [log for log in logs.values() if log is not None]

    @property
    def failed(self) -> dict[TopicPartition, StorageError]:
        """The logs that exist but could not be loaded, with their errors."""
        return {key: error for each in self.log_dirs for key, error in each.damaged.copy().items()}

    @property
    def producer_count(self) -> int:
        """The number of idempotent producers in all logs."""
        return self._environment.producer_count.total

    @property
    def was_clean(self) -> bool:
        """True if all log dirs were shut down cleanly before this start."""
        return all(log_dir.was_clean for log_dir in self.log_dirs)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None if it is missing or offline."""
        return online_log(self.log_dirs, topic_partition)

    def has_lost(self, topic_partition: TopicPartition) -> bool:
        """True if all log dirs are online, and none of them has the log, not even a damaged one."""
        is_missing = all(each.is_online and topic_partition not in each.logs for each in self.log_dirs)
        return is_missing and self.damage_of(topic_partition) is None

    def damage_of(self, topic_partition: TopicPartition) -> StorageError | None:
        """Return the error with which the log of a partition could not be loaded, or None."""
        found = (each.damaged.get(topic_partition) for each in self.log_dirs)
        return next((error for error in found if error is not None), None)

    def kept(self, log: Log) -> Kept:
        """Return whether an online log may have lost acknowledged records, as known since it was loaded."""
        log_dir = next(each for each in self.log_dirs if each.path == log.log_dir)
        return log_dir.kept.of(log.topic_partition, log.log_end_offset)

    def claim(self, topic_partition: TopicPartition, topic_id: UUID) -> Log | None:
        """Return the log of a partition, or None if it is missing or offline.

        The log of another topic with the same name is renamed to `-stray`. A log whose topic id was lost gets
        `topic_id`.
        """
        self._make_room(topic_partition, topic_id)
        log = self.get(topic_partition)
        if log is not None:
            self.topic_ids.give_again(log, topic_id)
            self._choice.forget(topic_partition)
        return log

    def _make_room(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Rename the log of another topic with the same name to `-stray`. Raises StorageError."""
        log = self.get(topic_partition)
        if log is not None and log.topic_id not in (None, topic_id):
            self.set_aside(topic_partition, "the log belongs to another topic with the same name")

    def set_aside(self, topic_partition: TopicPartition, why: str) -> None:
        """Stop a move of the log, and rename its directory to `-stray`, so that another log can have the name."""
        self.moves.stop(topic_partition)
        log = self.get(topic_partition)
        if log is not None:
            self.strays.set_aside(log, why)
            self._forget(log)

    def _forget(self, log: Log) -> None:
        """Remove a log from the loaded logs, because its directory has been renamed.

        If a log dir that is still being loaded has listed an older log of the partition, the older log stays listed.
        """
        for log_dir in self.log_dirs:
            if log_dir.logs.get(log.topic_partition) is log:
                log_dir.forget(log.topic_partition)

    def load(
        self,
        on_progress: Callable[[LoadProgress], None] = lambda _: None,
        *,
        last_incarnation: LastIncarnation = NO_INCARNATION,
    ) -> dict[TopicPartition, Log]:
        """Open all log dirs, and load and return their logs. A log dir that fails goes offline.

        Raises LogDirRefused if all log dirs have failed. Raises LogDirRefused also if one log dir is locked or belongs
        to another broker, because a start without that log dir would lose its logs. A clean shutdown marker counts only
        if the previous run of the broker (`last_incarnation`) wrote it.
        """
        self._loader.last_incarnation = last_incarnation
        self._on_each_online_dir(lambda log_dir: log_dir.open(self._identity, self._new_uuid))
        self._on_each_online_dir(self._finish_moves)
        self._on_each_online_dir(lambda log_dir: self._loader.load(log_dir, on_progress))
        superfluous = superfluous_logs(self.online_logs(), self._assigned)
        self._on_each_online_dir(lambda log_dir: self._set_aside_from(log_dir, superfluous))
        if not any(log_dir.is_online for log_dir in self.log_dirs):
            reasons = "; ".join(str(log_dir.failure) for log_dir in self.log_dirs)
            raise LogDirRefused(",".join(self._settings.log_dirs), f"no log dir can be used: {reasons}")
        return self.logs

    def _finish_moves(self, log_dir: LogDir) -> None:
        names, log_dirs = self._loader.names(log_dir), self._settings.log_dirs
        if all(each.is_online for each in self.log_dirs):
            resumed = finish_interrupted_moves(self._environment, log_dir.path, names, log_dirs)
            self.moves.interrupted.update(resumed)

    def _set_aside_from(self, log_dir: LogDir, superfluous: Sequence[Log]) -> None:
        for log in superfluous:
            if log.log_dir == log_dir.path:
                del log_dir.logs[log.topic_partition]
                self.strays.set_aside(log, "another log dir has a log of the same partition, too")

    def _on_each_online_dir(self, work: Callable[[LogDir], None]) -> None:
        for log_dir in self.log_dirs:
            if log_dir.is_online:
                try:
                    work(log_dir)
                except LogDirRefused:
                    raise
                except StorageError as error:
                    _logger.error("%s", error)
                    log_dir.fail(error)

    def _new_uuid(self) -> UUID:
        return kafka_uuid.random_uuid(self._environment.random.getrandbits)

    def _truncated(self, log: WaitingLog) -> None:
        """Register a log whose truncation has to be completed.

        If the log is still being loaded, the loader completes the truncation.
        """
        self.truncated.add(log)
        for log_dir in self.log_dirs:
            if log_dir.logs.get(log.topic_partition) is log:
                self.truncated.on_added(log_dir)

    def _sync_due(self, log: WaitingLog) -> None:
        self.on_sync_due(log)

    def create(
        self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig, log_dir: str | None = None
    ) -> Log:
        """Create a log in `log_dir` (a path), or in the preferred log dir, or else by `log.dirs.placement`.

        The log of another topic with the same name is renamed to `-stray`. If the checkpoint files may list an earlier
        log with the same name, or if `flush.messages` is 1, the new log refuses appends until `truncated_logs` has
        rewritten the files. Raises StorageError if the disk fails, or if the log exists but could not be loaded. Raises
        ApiError if no log dir can take the log.
        """
        damage = self.damage_of(topic_partition)
        if damage is not None:
            raise damage
        self._make_room(topic_partition, topic_id)
        chosen = self._choice.at(log_dir) if log_dir else self._choice.choose(topic_partition)
        self._choice.forget(topic_partition)
        place = LogPlace(
            log_dir=chosen.path,
            directory=f"{chosen.path}/{topic_partition}",
            topic_partition=topic_partition,
            config=config,
            recovery_point=0,
        )
        log = chosen.logs[topic_partition] = self._create(place, topic_id)
        if chosen.begin_log(topic_partition) or config.flush_messages == 1:
            log.await_checkpoint()
        return log

    def _create(self, place: LogPlace, topic_id: UUID) -> Log:
        with disk_errors(place.log_dir, place.directory):
            self._environment.files.make_dir(place.directory)
        log = open_log(self._environment, place, self._clock.now_ms())
        self.topic_ids.give(log, topic_id)
        return log

    def prefer(self, topic_partition: TopicPartition, log_dir: str) -> None:
        """Set the preferred log dir of a log that does not exist yet (KIP-113).

        Raises ApiError if the log dir is unknown or offline.
        """
        self._choice.prefer(topic_partition, log_dir)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the log for deletion; its files are removed after `file.delete.delay.ms`, or soon if it is damaged."""
        self._delete_damaged(topic_partition)
        self.moves.stop(topic_partition)
        log = self.get(topic_partition)
        if log is not None:
            log.move_to(marked_directory(self._environment, log.log_dir, topic_partition, checkpoints.DELETED_DIR))
            self._forget(log)
            self._environment.trash.add(log.directory, self._clock.now_ms() + log.config.file_delete_delay_ms)

    def _delete_damaged(self, topic_partition: TopicPartition) -> None:
        """Delete the files of a damaged log, because a later log with the same name would load them."""
        for log_dir in [each for each in self.log_dirs if topic_partition in each.damaged]:
            deleted = marked_directory(self._environment, log_dir.path, topic_partition, checkpoints.DELETED_DIR)
            log_dir.rename_damaged(topic_partition, deleted)
            self._environment.trash.add(deleted, self._clock.now_ms())

    def fail_dir(self, error: StorageError) -> set[TopicPartition]:
        """Take the log dir in which `error` occurred offline, and return the partitions whose logs are in the log dir.

        Return an empty set if the log dir was offline already, or if the same error has been reported before.
        """
        for log_dir in self.log_dirs:
            if log_dir.path == error.log_dir and log_dir.is_online and error is not log_dir.last_failure:
                affected = set(log_dir.logs)
                self.moves.dir_failed(error.log_dir)
                log_dir.fail(error)
                return affected
        return set()

    def probe(self, log_dirs: Sequence[LogDir]) -> bool:
        """Try the offline log dirs again, and load those that work. Return True if any works. Runs in a thread.

        Logs that were loaded from these log dirs before must not be in use any more.
        """
        is_back = False
        for log_dir in [each for each in log_dirs if not each.is_online]:
            try:
                log_dir.check()
                log_dir.open(self._identity, self._new_uuid)
                self._loader.load(log_dir)
                self._set_aside_replaced(log_dir)
            except StorageError as error:
                log_dir.fail(error)
            else:
                log_dir.failure, is_back = None, True
        return is_back

    def _set_aside_replaced(self, log_dir: LogDir) -> None:
        """Rename logs of a reloaded log dir to `-stray` if other log dirs got logs of the partitions meanwhile."""
        for topic_partition in [each for each in log_dir.logs if self.get(each) is not None]:
            self.strays.set_aside(log_dir.logs.pop(topic_partition), "another log dir has a log of the partition")

    def due_deletions(self, now_ms: int) -> list[str]:
        """Return the paths whose deletion is due, and drop them from the list; the caller calls `remove_files`."""
        return self._environment.trash.take(now_ms)

    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove deleted files and directories, possibly in a thread. The next start retries failed removals."""
        refusals = remove_all(self._environment.files, paths)
        if refusals:
            _logger.warning(
                "%d files or directories could not be deleted; the first error: %s", len(refusals), refusals[0]
            )

    def checkpointed_high_watermark(self, topic_partition: TopicPartition) -> int:
        """Return the high watermark of a log in the checkpoint, or 0 if the checkpoint or this broker lacks the log."""
        log_dirs = [each for each in self.log_dirs if each.is_online and topic_partition in each.logs]
        return log_dirs[0].checkpointed(checkpoints.HIGH_WATERMARKS, topic_partition) if log_dirs else 0

    def checkpoint_calls(self, high_watermark_of: HighWatermarkOf) -> list[Callable[[], None]]:
        """Return functions that each write one checkpoint file of a log dir; the caller runs them in a thread."""
        return [call for each in self.log_dirs if each.is_online for call in each.checkpoint_calls(high_watermark_of)]

    def checkpoint(self, high_watermark_of: HighWatermarkOf) -> None:
        """Write all checkpoints now. The call blocks."""
        for call in self.checkpoint_calls(high_watermark_of):
            call()

    def shutdown(self, high_watermark_of: HighWatermarkOf, broker_epoch: int = NO_EPOCH) -> None:
        """Close all logs; write checkpoints and a clean shutdown marker in each log dir that works. The call blocks."""
        for log_dir in self.log_dirs:
            if log_dir.is_online:
                try:
                    close_logs(list(log_dir.logs.values()))
                    log_dir.checkpoint(high_watermark_of)
                    log_dir.mark_clean(broker_epoch)
                except StorageError as error:
                    if isinstance(error, LogDirFailed):
                        log_dir.fail(error)
                    _logger.error("%s", error)
