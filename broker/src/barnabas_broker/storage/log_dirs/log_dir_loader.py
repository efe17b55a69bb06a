"""The loading of the logs in a log dir: at startup, or in a thread when a log dir is back online."""

import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import NO_INCARNATION
from barnabas_broker.storage.errors import DiskFull, Exhausted, LogDirFailed, StorageError, disk_errors
from barnabas_broker.storage.log_dirs.log_dir import LogDir, online_log
from barnabas_broker.storage.log_dirs.stray_logs import StrayLogs
from barnabas_broker.storage.log_dirs.topic_ids import TopicIds
from barnabas_broker.storage.log_dirs.truncated_logs import TruncatedLogs
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_broker.storage.logs.log_loader import open_log
from barnabas_broker.storage.logs.log_place import LogPlace
from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)


class LoadProgress(NamedTuple):
    """The progress of loading a log dir."""

    log_dir: str
    partitions_done: int
    partitions_total: int
    bytes_recovered: int


class LogDirLoader:
    """The loader of log dirs; `log_dirs` are all log dirs of the broker."""

    def __init__(
        self,
        environment: LogEnvironment,
        clock: Clock,
        log_dirs: Sequence[LogDir],
        config_of: Callable[[str], LogConfig],
        strays: StrayLogs,
        topic_ids: TopicIds,
        truncated: TruncatedLogs,
    ) -> None:
        self.last_incarnation = NO_INCARNATION
        self._environment = environment
        self._clock = clock
        self._log_dirs = log_dirs
        self._config_of = config_of
        self._strays = strays
        self._topic_ids = topic_ids
        self._truncated = truncated

    def load(self, log_dir: LogDir, on_progress: Callable[[LoadProgress], None] = lambda _: None) -> None:
        """Load the undamaged logs of an open log dir, and write its checkpoints. Raises StorageError."""
        clean_shutdown_ns = log_dir.take_clean_mark(self.last_incarnation)
        log_dir.kept.cut.clear()
        log_dir.damaged.clear()
        recovery_points = log_dir.offsets(file_names.RECOVERY_POINTS)
        starts = log_dir.offsets(file_names.LOG_START_OFFSETS)
        high_watermarks = log_dir.offsets(file_names.HIGH_WATERMARKS)
        log_dir.kept.promised = log_dir.offsets(file_names.SYNCED_LOGS).keys()
        found = self._partition_dirs(log_dir)
        done, recovered_bytes, has_failed = 0, 0, log_dir.has_failed()

        def count(recovered: int) -> None:
            nonlocal recovered_bytes
            recovered_bytes += recovered
            on_progress(LoadProgress(log_dir.path, done, len(found), recovered_bytes))

        for done, topic_partition in enumerate(found):  # noqa: B007 - `count` reads it
            place = LogPlace(
                log_dir=log_dir.path,
                directory=f"{log_dir.path}/{topic_partition}",
                topic_partition=topic_partition,
                config=self._config_of(topic_partition.topic),
                log_start_offset=starts.get(topic_partition, 0),
                recovery_point=recovery_points.get(topic_partition),
                clean_shutdown_ns=clean_shutdown_ns,
                high_watermark=high_watermarks.get(topic_partition),
                has_failed=has_failed,
                is_promised=topic_partition in log_dir.kept.promised,
            )
            found_bytes = self._log_bytes(place) if has_failed else 0
            self._load_log(log_dir, place, count)
            if topic_partition in log_dir.logs and log_dir.logs[topic_partition].segments.size_bytes < found_bytes:
                log_dir.kept.cut.add(topic_partition)
        for log in log_dir.take_clean_offsets():
            self._truncated.add(log)
        log_dir.has_all_logs = True
        # After a failed sync, the data of a log is rewritten when the log is loaded. Damaged logs cannot be loaded, so
        # the file that marks the failed sync stays while a log is damaged.
        self._write_what_is_found(log_dir, is_rewritten=not log_dir.damaged)
        on_progress(LoadProgress(log_dir.path, len(found), len(found), recovered_bytes))
        after = "a clean shutdown" if clean_shutdown_ns is not None else "a crash, or at the first start of the broker"
        _logger.info(
            "%s: loaded %d logs after %s; %d bytes were checked", log_dir.path, len(found), after, recovered_bytes
        )

    def _write_what_is_found(self, log_dir: LogDir, *, is_rewritten: bool) -> None:
        """Write the checkpoints of the loaded logs; if the disk is full, they are written later.

        Truncated logs refuse appends until the checkpoints are written. A full disk does not stop the start of the
        broker, because retention and deletions can free space.

        `is_rewritten` is True if all data that a failed sync may have lost has been written again; the file that marks
        the failed sync is then removed.
        """
        try:
            log_dir.checkpoint_clean_offsets()
            self._truncated.complete(log_dir)
            if is_rewritten:
                log_dir.is_rewritten()
        except DiskFull as error:
            _logger.warning("the checkpoints will be written once the disk has space again: %s", error)

    def _log_bytes(self, place: LogPlace) -> int:
        with disk_errors(place.log_dir, place.directory):
            entries = self._environment.files.scan(place.directory)
        return sum(each.size_bytes for each in entries if each.name.endswith(file_names.LOG))

    def _load_log(self, log_dir: LogDir, place: LogPlace, on_recovered: Callable[[int], None]) -> None:
        """Add a log to `log_dir.logs`, or its error to `log_dir.damaged` if the log is damaged.

        Raises LogDirFailed or Exhausted if the log dir cannot be used.
        """
        try:
            log = open_log(self._environment, place, self._clock.now_ms(), on_recovered)
            if self._is_of_a_topic(log):
                log_dir.logs[place.topic_partition] = log
        except (LogDirFailed, Exhausted):  # The log is not damaged; the whole log dir is loaded again later.
            raise
        except StorageError as error:
            _logger.error("%s", error)
            log_dir.damaged[place.topic_partition] = error

    def _is_of_a_topic(self, log: Log) -> bool:
        """Return True if the log belongs to a topic; remove or set aside the directory of any other log.

        An empty directory is removed: the creation of the log failed there, and may have succeeded later in another log
        dir. A log without records needs no topic id, because any topic of that name can use it. A log with records but
        without a topic id is renamed to `-stray`, unless its name identifies the topic.
        """
        if log.topic_id is None and self._is_removed(log):
            return False
        if log.topic_id is None and log.log_end_offset and not self._topic_ids.find(log):
            self._strays.set_aside(log, "the log has no topic id, and no topic can be found by the log's name")
            return False
        return True

    def _is_removed(self, log: Log) -> bool:
        """Remove the directory of a log if it is empty; return whether it was removed."""
        with disk_errors(log.log_dir, log.directory):
            is_empty = not log.files.scan(log.directory)
            if is_empty:
                log.files.remove(log.directory)
        return is_empty

    def _partition_dirs(self, log_dir: LogDir) -> list[TopicPartition]:
        """Register the stray logs of a log dir, and return the partitions of the other logs.

        Schedules the removal of `-delete` directories, and of `-future` copies whose logs are online.
        """
        found, names = [], self.names(log_dir)
        self._strays.load(log_dir.path, names)
        for name in names:
            parsed = file_names.parse_partition_dir(name)
            if parsed is None:
                continue
            where, state = parsed
            if state == "":
                found.append(where)
            elif state == file_names.DELETED_DIR or (
                state == file_names.FUTURE_DIR and online_log(self._log_dirs, where) is not None
            ):
                self._environment.trash.add(f"{log_dir.path}/{name}", 0)
        return found

    def names(self, log_dir: LogDir) -> list[str]:
        """Return the names of the directories in a log dir. Raises StorageError."""
        with disk_errors(log_dir.path, log_dir.path):
            return [entry.name for entry in self._environment.files.scan(log_dir.path) if entry.is_dir]
