"""The loading of the logs in a log dir: at startup, or in a thread when a log dir is back online.

A truncated log refuses appends until its truncation is complete (docs/explanation/storage-guarantees.md). After a
restart, everything below a checkpointed recovery point counts as synced. A log that was truncated below its recovery
point therefore refuses appends until the truncation and the new recovery point are on the disk. One write of the
checkpoints serves all truncated logs of a log dir. After the write, the producer states of the logs are loaded from the
last remaining snapshots. A new log also refuses appends until the checkpoints no longer list an earlier log with the
same name.

The topic ids of logs (`partition.metadata`) prevent a later topic of the same name from using a log. A thread syncs the
id of a new log about a second after the log is created, because a sync for each new log would block the event loop. A
flush of the log in the meantime syncs the id, too. If a power failure loses the id, the broker finds the topic by its
name, but only if no other topic can have had that name.

Stray logs are not served, because the metadata lacks their topics. The broker keeps a stray log until the metadata
decides about it: the log can be served if the metadata has the topic again, and deleted if the metadata has a tombstone
of the topic. If another log needs the directory's name, the stray log is renamed to `-stray`. The broker never uses a
renamed log again by itself: `docs/explanation/storage-guarantees.md` says what to do.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import (
    NO_INCARNATION,
    decode_epochs,
    decode_partition_metadata,
    encode_partition_metadata,
)
from barnabas_broker.storage.disk.files import FlushJob
from barnabas_broker.storage.errors import (
    DiskFull,
    Exhausted,
    LogDirFailed,
    StorageError,
    disk_access,
    disk_errors,
    storage_error,
)
from barnabas_broker.storage.log_dirs.log_dir import LogDir, online_log
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_history import ProducerReplay
from barnabas_broker.storage.logs.log_loader import open_log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment, LogPlace, WaitingLog
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition

_logger: Final = logging.getLogger(__name__)
_DELETE_DELAY_MS: Final = 60_000
"""The delay before a stray log is deleted: the default of `file.delete.delay.ms`, as the topic's value is unknown."""


class StrayLog(msgspec.Struct, frozen=True):
    """A stray log. After a restart, its topic name comes from the directory name, which shortens long topic names."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    log_dir: str
    directory: str
    size_bytes: int


class StrayTotal(msgspec.Struct, frozen=True):
    """The number and total size of the stray logs in a log dir."""

    logs: int
    size_bytes: int


def marked_directory(environment: LogEnvironment, log_dir: str, topic_partition: TopicPartition, state: str) -> str:
    """Return a unique path for the renamed directory of a log; `state` is the suffix, such as `-stray`."""
    unique = kafka_uuid.random_uuid(environment.random.getrandbits)
    return f"{log_dir}/{checkpoints.marked_dir(topic_partition, unique, state)}"


class StrayLogs:
    """The stray logs of all log dirs. For an offline log dir, these are the logs that were found before it failed."""

    def __init__(self, environment: LogEnvironment, clock: Clock, log_dirs: Sequence[LogDir]) -> None:
        self._environment = environment
        self._clock = clock
        self._log_dirs = log_dirs
        self._by_directory: dict[str, StrayLog] = {}

    def __iter__(self) -> Iterator[StrayLog]:
        return iter(list(self._by_directory.values()))

    def __len__(self) -> int:
        return len(self._by_directory)

    def of(self, topic_id: UUID, number: int) -> StrayLog | None:
        """Return the stray log with a topic id and a partition number, or None."""
        return next((s for s in self if (s.topic_id, s.topic_partition.partition) == (topic_id, number)), None)

    def keep(self, log: Log, why: str) -> None:
        """Register a log as stray, without renaming its directory to `-stray`. The log is not served."""
        if log.directory not in self._by_directory:
            self._add(log)
            _logger.error("%s is kept, but not served: %s; `barnabas status` says what to do", log.directory, why)

    def forget(self, log: Log) -> None:
        """Forget a log that is served again or has been deleted."""
        self._by_directory.pop(log.directory, None)

    def set_aside(self, log: Log, why: str) -> None:
        """Rename a log's directory to `-stray`, and register the log as stray. Raises StorageError."""
        self.forget(log)
        log.move_to(marked_directory(self._environment, log.log_dir, log.topic_partition, checkpoints.STRAY_DIR))
        self._add(log)
        _logger.error(
            "%s is set aside and no longer served: %s; docs/explanation/storage-guarantees.md says what to do",
            log.directory,
            why,
        )

    def _add(self, log: Log) -> None:
        stray = StrayLog(log.topic_partition, log.topic_id, log.log_dir, log.directory, log.segments.size_bytes)
        self._by_directory[log.directory] = stray

    def damaged_id(self, log_dir: LogDir, topic_partition: TopicPartition) -> UUID | None:
        """Return the topic id of a log that could not be loaded, or None if the id is missing or damaged.

        Raises StorageError.
        """
        directory = f"{log_dir.path}/{topic_partition}"
        with disk_errors(log_dir.path, directory):
            return self._topic_id(directory)

    def damaged_epoch(self, log_dir: LogDir, topic_partition: TopicPartition) -> int | None:
        """Return the latest leader epoch of a log that could not be loaded; None without a readable checkpoint."""
        try:
            path = f"{log_dir.path}/{topic_partition}/{checkpoints.LEADER_EPOCHS}"
            return decode_epochs(self._environment.files.read(path))[-1].epoch
        except (OSError, ValueError, IndexError):
            return None

    def load(self, log_dir: str, names: Iterable[str]) -> None:
        """Replace the registered stray logs of a log dir by the `-stray` directories among `names`.

        Raises StorageError.
        """
        for stray in self:
            if stray.log_dir == log_dir:
                del self._by_directory[stray.directory]
        for name in names:
            parsed = checkpoints.parse_partition_dir(name)
            if parsed is not None and parsed.state == checkpoints.STRAY_DIR:
                self._load(log_dir, f"{log_dir}/{name}", parsed.topic_partition)

    def _load(self, log_dir: str, directory: str, topic_partition: TopicPartition) -> None:
        with disk_errors(log_dir, directory):
            size_bytes = sum(entry.size_bytes for entry in self._environment.files.scan(directory))
            stray = StrayLog(topic_partition, self._topic_id(directory), log_dir, directory, size_bytes)
        self._by_directory[directory] = stray

    def _topic_id(self, directory: str) -> UUID | None:
        try:
            return decode_partition_metadata(
                self._environment.files.read(f"{directory}/{checkpoints.PARTITION_METADATA}")
            )
        except (FileNotFoundError, ValueError):
            return None

    def delete(self, stray: StrayLog) -> None:
        """Schedule the deletion of a `-stray` directory whose topic was deleted. Raises StorageError.

        A directory in an offline log dir is only forgotten; it is found again when the log dir is online.
        """
        if self._is_online(stray.log_dir):
            directory = stray.directory.removesuffix(checkpoints.STRAY_DIR) + checkpoints.DELETED_DIR
            try:
                self._environment.files.rename(stray.directory, directory)
            except FileNotFoundError:
                _logger.info("%s: the directory has already been removed", stray.directory)
            except OSError as error:
                raise storage_error(stray.log_dir, stray.directory, error) from error
            else:
                self._environment.trash.add(directory, self._clock.now_ms() + _DELETE_DELAY_MS)
                _logger.info("%s: the topic was deleted, so the stray log is deleted", stray.directory)
        self._by_directory.pop(stray.directory, None)

    def _is_online(self, log_dir: str) -> bool:
        return any(each.path == log_dir and each.is_online for each in self._log_dirs)

    def totals(self) -> dict[str, StrayTotal]:
        """Return the number and size of stray logs for each log dir that has any."""
        totals: dict[str, StrayTotal] = {}
        for stray in self:
            before = totals.get(stray.log_dir, StrayTotal(0, 0))
            totals[stray.log_dir] = StrayTotal(before.logs + 1, before.size_bytes + stray.size_bytes)
        return totals


class CutLog(msgspec.Struct, frozen=True):
    """A log, and the number of its truncations at the time when a sync or replay of the log began.

    If the log is truncated again before the sync or replay has ended, the result is ignored.
    """

    log: Log
    truncations: int

    @classmethod
    def now(cls, log: Log) -> "CutLog":
        """Return a `CutLog` with the log's current number of truncations, for `is_current` to compare."""
        return cls(log, log.segments.truncations)

    @property
    def is_current(self) -> bool:
        """True if the log has not been truncated since this object was created."""
        return self.log.segments.truncations == self.truncations

    @property
    def awaits_checkpoint(self) -> bool:
        """True if the checkpoints must be rewritten before the log accepts appends."""
        return self.log.known_producers.await_checkpoint

    def reloaded(self, replay: ProducerReplay) -> None:
        """Give the log the rebuilt producer states and let it accept appends, unless it was truncated again."""
        if self.is_current:
            self.log.known_producers.reloaded(replay)


def _reload(cut: CutLog) -> None:
    replay = cut.log.producer_replay()
    replay.run()
    cut.reloaded(replay)


def cut_jobs(logs: Sequence[CutLog]) -> list[FlushJob]:
    """Return the jobs that sync truncated logs; `make_durable` runs the jobs. Raises StorageError."""
    return [job for cut in logs if cut.awaits_checkpoint and (job := _cut_job(cut.log)) is not None]


@disk_access
def _cut_job(log: Log) -> FlushJob | None:
    """Return a job that syncs the truncated file and its directory, or None for a new log without files.

    Without this sync, a power failure could bring truncated records back, and the next segment could have new records
    with the same offsets. A power failure could also bring back the old segments of an emptied log. The log would then
    count as uncompacted, because the checkpoints no longer have the offset up to which it is compacted.
    """
    active = log.segments.active
    if not log.files.exists(active.path(checkpoints.LOG)):
        return None
    calls = (active.file.sync, partial(log.files.sync_dir, log.directory))
    return FlushJob(log.log_dir, log.directory, calls, log.syncs.recovery_point, log.segments.truncations)


def make_durable(jobs: Sequence[FlushJob], log_dir: LogDir) -> None:
    """Run the jobs that sync truncated logs, then rewrite the checkpoints of the log dir.

    The call blocks. Raises StorageError.
    """
    for job in jobs:
        job.run()
    log_dir.rewrite_checkpoints()


class TruncatedLogs:
    """The logs whose truncation is incomplete.

    When a log is added, `on_added` is called with its log dir. The default `on_added` is `complete`, which returns
    after all truncations in the log dir are complete.
    """

    def __init__(self) -> None:
        self._waiting: WeakKeyDictionary[WaitingLog, None] = WeakKeyDictionary()
        self.on_added: Callable[[LogDir], object] = self.complete

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, log: WaitingLog) -> None:
        """Add a log whose truncation is incomplete."""
        self._waiting[log] = None

    def take(self, log_dir: LogDir) -> list[CutLog]:
        """Remove and return the logs that are in `log_dir`.

        If the caller cannot complete the truncation of a log, it calls `put_back`. A log that a thread is still loading
        is not returned yet. Deleted logs disappear by themselves, because only weak references to logs are stored.
        """
        waiting = [log for ref in self._waiting.keyrefs() if (log := ref()) is not None]
        here = [log for each in waiting if (log := log_dir.logs.get(each.topic_partition)) is each]
        for log in here:
            del self._waiting[log]
        return [CutLog.now(log) for log in here]

    def put_back(self, logs: list[CutLog]) -> None:
        """Put back the logs whose truncation is still incomplete, so that `take` returns them again."""
        self._waiting.update({cut.log: None for cut in logs if cut.log.known_producers.are_held_back})

    def complete(self, log_dir: LogDir) -> None:
        """Complete the truncations of a log dir's logs, and let the logs accept appends.

        Syncs the logs, rewrites the checkpoints and rebuilds the producer states. The call blocks. Raises StorageError.
        """
        taken = self.take(log_dir)
        try:
            if any(cut.awaits_checkpoint for cut in taken):
                make_durable(cut_jobs(taken), log_dir)
            for cut in taken:
                _reload(cut)
        except StorageError:
            self.put_back(taken)
            raise


class TopicLookup(msgspec.Struct, frozen=True):
    """The functions that find the topic of a log in the metadata.

    `assigned` returns this broker's partition for a topic id and a partition number, or None. `only_topic` returns the
    id of the topic that has the given name now. It returns None if there is no such topic, or if a deleted topic with
    this name may still have logs.
    """

    assigned: Callable[[UUID, int], TopicPartition | None] = lambda *_: None
    only_topic: Callable[[str], UUID | None] = lambda _: None


NO_TOPICS: Final = TopicLookup()


class TopicIds:
    """The topic ids of logs."""

    def __init__(self, topics: TopicLookup) -> None:
        self._only_topic = topics.only_topic
        self._unsynced: dict[Log, None] = {}

    def give(self, log: Log, topic_id: UUID) -> None:
        """Write the topic id of a new log to `partition.metadata`, and schedule a sync of the file.

        Raises StorageError.
        """
        _write(log, topic_id)
        log.belongs_to(topic_id)
        self._unsynced[log] = None

    def give_again(self, log: Log, topic_id: UUID) -> None:
        """Assign the topic id to an existing log, whose id a power failure may have lost.

        On a full disk the id is not written, so the next start has to find it again. Raises StorageError if the disk
        fails.
        """
        if log.topic_id == topic_id:
            return
        try:
            self.give(log, topic_id)
        except DiskFull as error:
            _logger.warning("%s: the topic id cannot be written: %s", log.directory, error)
            log.belongs_to(topic_id)

    def find(self, log: Log) -> bool:
        """Restore the lost topic id of a log by the topic's name; return False if the id is unknown.

        Raises StorageError.
        """
        topic_id = self._only_topic(log.topic_partition.topic)
        if topic_id is not None:
            self.give_again(log, topic_id)
        return topic_id is not None

    def sync_later(self, log: Log) -> None:
        """Schedule a sync of the log's topic id, even if the id was synced before."""
        self._unsynced[log] = None

    def take_unsynced(self, log_dir: str) -> list[Log]:
        """Cancel the scheduled syncs of topic ids in a log dir, and return the logs whose topic ids were to be synced.

        The caller syncs the topic ids with `sync_call`.
        """
        unsynced = [log for log in self._unsynced if log.log_dir == log_dir]
        for log in unsynced:
            del self._unsynced[log]
        return unsynced


@disk_access
def _write(log: Log, topic_id: UUID) -> None:
    log.files.write_atomically(_path(log), encode_partition_metadata(topic_id), sync=False)


@disk_access
def sync_call(log: Log) -> Callable[[], None]:
    """Return a function that syncs the topic id file of a log; the caller runs it in a thread.

    Both this function and the returned one raise StorageError.
    """
    files, log_dir, directory = log.files, log.log_dir, log.directory
    file = files.open_existing(_path(log))

    def sync() -> None:
        with disk_errors(log_dir, directory):
            file.sync()
            files.sync_dir(directory)

    return sync


def _path(log: Log) -> str:
    return f"{log.directory}/{checkpoints.PARTITION_METADATA}"


class LoadProgress(msgspec.Struct, frozen=True):
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
        recovery_points = log_dir.offsets(checkpoints.RECOVERY_POINTS)
        starts = log_dir.offsets(checkpoints.LOG_START_OFFSETS)
        high_watermarks = log_dir.offsets(checkpoints.HIGH_WATERMARKS)
        log_dir.kept.promised = log_dir.offsets(checkpoints.SYNCED_LOGS).keys()
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
        return sum(each.size_bytes for each in entries if each.name.endswith(checkpoints.LOG))

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
            parsed = checkpoints.parse_partition_dir(name)
            if parsed is None:
                continue
            where, state = parsed
            if state == "":
                found.append(where)
            elif state == checkpoints.DELETED_DIR or (
                state == checkpoints.FUTURE_DIR and online_log(self._log_dirs, where) is not None
            ):
                self._environment.trash.add(f"{log_dir.path}/{name}", 0)
        return found

    def names(self, log_dir: LogDir) -> list[str]:
        """Return the names of the directories in a log dir. Raises StorageError."""
        with disk_errors(log_dir.path, log_dir.path):
            return [entry.name for entry in self._environment.files.scan(log_dir.path) if entry.is_dir]
