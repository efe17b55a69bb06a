"""The recovery point of a log, the jobs that sync the log, and the records to sync before they are acknowledged."""

import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import Final, Protocol

import msgspec

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import ProducerSnapshots
from barnabas_broker.storage.disk.files import DiskThreads, FileSystem, FlushJob, OpenFiles, Trash
from barnabas_broker.storage.errors import disk_access, half_done
from barnabas_broker.storage.logs.log_history import LeaderEpochs, LogProducers, ProducerReplay
from barnabas_broker.storage.producer_state import ProducerCount
from barnabas_broker.storage.segments.indexes import IndexPages
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segments import Segments, finish_swap, listed_segments, promoted_names
from barnabas_core.config.log_config import LONG_MAX, LogConfig
from barnabas_core.topic_partition import TopicPartition

TOUCHED_BY_NO_ONE: Final = 2**63 - 1
"""The `clean_shutdown_ns` of a log that needs no recovery: a new log, or a copy that was synced completely."""


class LogPlace(msgspec.Struct, frozen=True, kw_only=True):
    """The directory and settings of a log, and the log's values in the checkpoints of the log dir."""

    log_dir: str
    directory: str
    topic_partition: TopicPartition
    config: LogConfig
    log_start_offset: int = 0
    recovery_point: int | None = None
    """The recovery point; None if the checkpoint does not have the log."""
    clean_shutdown_ns: int | None = None
    """The time at which the clean shutdown marker was written; None after a crash."""
    high_watermark: int | None = None
    """The high watermark; None if the checkpoint does not have the log."""
    is_promised: bool = False
    """True if the log is listed in the checkpoint of logs that acknowledge only synced records."""
    has_failed: bool = False
    """True if a sync in the log dir has failed. A later sync skips the failed pages, so the data must be rewritten."""


class LogSyncs:
    """The sync jobs and the recovery point of a log. All records below the recovery point are on the disk.

    The argument `log_end` of methods is the log end offset.
    """

    __slots__ = (
        "_epochs",
        "_files",
        "_flush_messages",
        "_flush_ms",
        "_flushed_ms",
        "_is_promised",
        "_renames",
        "_segments",
        "_snapshots",
        "_synced_segment",
        "_under_way",
        "directory",
        "due_at",
        "log_dir",
        "on_disk_until",
        "recovery_point",
        "unsynced_from",
        "was_recovered",
    )

    def __init__(
        self,
        files: FileSystem,
        place: LogPlace,
        segments: Segments,
        snapshots: ProducerSnapshots,
        epochs: LeaderEpochs,
        recovery_point: int,
    ) -> None:
        self.log_dir = place.log_dir
        self.directory = place.directory
        self._files = files
        self._segments = segments
        self._snapshots = snapshots
        self._epochs = epochs
        self.recovery_point = recovery_point
        self.on_disk_until = recovery_point
        """The end offset of the records that may be on the disk, because their sync has begun or the broker crashed.

        If a truncation removes some of these records, a power failure may bring the removed records back.
        """
        self.unsynced_from: int | None = None
        """The first offset that must be synced before its record is acknowledged; None if no sync is required."""
        self.due_at = recovery_point
        """An append that ends at this offset or later must be synced before it is acknowledged."""
        self.was_recovered = False
        """True if the log was loaded after a crash, in which case its last truncation may be unsynced."""
        self._flush_messages = self._flush_ms = LONG_MAX
        self._is_promised = place.is_promised
        self._synced_segment: Segment | None = None
        """The segment that was active when a running sync began, if the sync includes it; otherwise None."""
        self._under_way = self._flushed_ms = self._renames = 0

    def configure(self, config: LogConfig) -> None:
        """Apply new values of `flush.messages` and `flush.ms`."""
        self._flush_messages, self._flush_ms = config.flush_messages, config.flush_ms
        self._bound()

    def moved_to(self, directory: str) -> None:
        """Set the log's new directory. Syncs that began in the old directory no longer raise the recovery point."""
        self.directory = directory
        self._renames += 1

    def _bound(self) -> None:
        """Compute `due_at`, the offset at which the next sync is due.

        The first records of a log are always synced before they are acknowledged, so a log that is empty after a power
        failure has lost no acknowledged record. The first records after the log was emptied are synced like this, too,
        because a power failure may lose the directory entry of the new first segment.
        """
        is_bound = self._is_promised or self.recovery_point <= self._segments.first.base_offset
        self.due_at = self.recovery_point + (1 if is_bound else self._flush_messages)

    def promise(self) -> None:
        """Promise to sync all records before they are acknowledged, from now on.

        Call this method before the log is listed in the checkpoint of logs that acknowledge only synced records.
        """
        self._is_promised = True
        self._bound()

    def withdraw_promise(self) -> None:
        """Stop syncing all records before they are acknowledged; from now on `flush.messages` decides.

        Before this call, the log must be removed from the checkpoint of logs that acknowledge only synced records. The
        method runs in a thread, so it leaves `due_at` unchanged; the next sync updates `due_at`.
        """
        self._is_promised = False

    def after_crash(self) -> None:
        """Record that the log is being loaded after a crash."""
        self.was_recovered = True

    def wait_from(self, offset: int) -> None:
        """Require a sync before records from `offset` on are acknowledged."""
        if self.unsynced_from is None:
            self.unsynced_from = offset

    def ack_end_offset(self, log_end: int) -> int:
        """Return the offset below which records may be acknowledged without a further sync."""
        return log_end if self.unsynced_from is None else self.unsynced_from

    @disk_access
    def flush_job(self, end: int) -> FlushJob | None:
        """Return a job that syncs all records below `end`, the end of a batch; None if they are already synced.

        The caller runs the job, and then calls `flushed` with the job.
        """
        if end <= self.recovery_point:
            return None
        self._begun(end)
        return self._job(self._sync_calls(end), end)

    def _job(self, calls: tuple[Callable[[], None], ...], end: int) -> FlushJob:
        calls = (*self._snapshots.late_calls(), *calls)
        return FlushJob(self.log_dir, self.directory, calls, end, self._segments.truncations, self._renames)

    def _sync_calls(self, end: int) -> tuple[Callable[[], None], ...]:
        """Return the calls that sync everything below `end`: first the files, then the directory."""
        files = self._files
        segments = [each for each in self._unsynced_segments() if each.base_offset < end]
        calls = [call for segment in segments for call in segment.sync_calls()]
        small = (self._snapshots.latest_path, f"{self.directory}/{checkpoints.PARTITION_METADATA}")
        calls += [files.open_file(path).sync for path in small if files.exists(path)]
        save_epochs = self._epochs.save_call()
        return (*calls, *([save_epochs] if save_epochs else []), partial(files.sync_dir, self.directory))

    @property
    def _may_be_cut(self) -> bool:
        return self._segments.truncations > 0 or self.was_recovered

    def _unsynced_segments(self) -> list[Segment]:
        """Return the segments with unsynced data.

        If the log may have been truncated, the segment that ends at the recovery point is included, because its new
        size may be unsynced.
        """
        return self._segments.starting_at(self.recovery_point - 1 if self._may_be_cut else self.recovery_point)

    def due_flush(self, log_end: int, now_ms: int) -> FlushJob | None:
        """Return a job that syncs the whole log if `flush.ms` has passed, and otherwise the rolled segments.

        Return None if the job would have nothing to sync.
        """
        if self.recovery_point == log_end:
            self._flushed_ms = now_ms
        elif now_ms - self._flushed_ms >= self._flush_ms:
            self._flushed_ms = now_ms
            return self.flush_job(log_end)
        return self.flush_job(min(self._segments.active.base_offset, log_end))

    @disk_access
    def flushed(self, job: FlushJob, log_end: int) -> None:
        """Raise the recovery point after `job` has run. Raises StorageError.

        The recovery point stays if the log was truncated or renamed after the job was created.
        """
        self._ended(log_end)
        self._snapshots.name_late()
        if (job.truncations, job.renames) == (self._segments.truncations, self._renames):
            self.synced_until(job.recovery_point, log_end)

    def closing_job(self, log_end: int) -> FlushJob | None:
        """Return the job that syncs everything for a clean shutdown; None if no sync is needed.

        The job includes truncated files and the directory, because a start after a clean shutdown does not check them.
        """
        job = self.flush_job(log_end)
        if not self._may_be_cut:
            return job
        segments = [each for each in self._unsynced_segments() if self._files.exists(each.path(checkpoints.LOG))]
        calls: list[Callable[[], None]] = [each.file.sync for each in segments]
        before = () if job is None else job.calls
        return self._job((*before, *calls, partial(self._files.sync_dir, self.directory)), log_end)

    def _begun(self, end: int) -> None:
        """Record that a sync of everything below `end` has begun.

        Records that are appended to the active segment during the sync may reach the disk, too.
        """
        self.on_disk_until = max(self.on_disk_until, end)
        self._under_way += 1
        if end > self._segments.active.base_offset:
            self._synced_segment = self._segments.active

    def _ended(self, log_end: int) -> None:
        """Record that a sync has ended."""
        self._under_way -= 1
        if not self._under_way:
            self.on_disk_until, self._synced_segment = self._may_be_on_disk_until(log_end), None

    def _may_be_on_disk_until(self, log_end: int) -> int:
        return log_end if self._segments.active is self._synced_segment else self.on_disk_until

    def synced_until(self, offset: int, log_end: int) -> None:
        """Raise the recovery point to `offset`, below which everything is on the disk."""
        self.recovery_point = max(self.recovery_point, offset)
        self._moved(log_end)

    def all_synced(self, log_end: int) -> None:
        """Record that the whole log is on the disk."""
        self.recovery_point = self.on_disk_until = log_end
        self._moved(log_end)

    def recovered(self, recovery_point: int, log_end: int) -> None:
        """Set the recovery point after a crash.

        Records up to `log_end` may have reached the disk without a sync, so `on_disk_until` becomes `log_end`.
        """
        self.recovery_point, self.on_disk_until, self.was_recovered = recovery_point, log_end, True

    def end_at(self, offset: int, log_end: int) -> bool:
        """Lower the recovery point and `on_disk_until` after a truncation of the log to `offset`.

        Return True if some removed records may be on the disk, from where a power failure could bring them back.
        """
        may_be_on_disk = offset < max(self.recovery_point, self._may_be_on_disk_until(log_end))
        self.recovery_point = min(offset, self.recovery_point)
        self.on_disk_until = min(offset, self.on_disk_until)
        self._moved(offset)
        return may_be_on_disk

    def _moved(self, log_end: int) -> None:
        self._bound()
        if self.unsynced_from is None:
            return
        if log_end < self.due_at:
            self.unsynced_from = None
        else:
            self.unsynced_from = min(max(self.unsynced_from, self.recovery_point), log_end)


class WaitingLog(Protocol):
    """The attributes of a `Log` that are needed to sync the log, or to complete its truncation."""

    topic_partition: TopicPartition
    syncs: LogSyncs
    known_producers: LogProducers
    log_end_offset: int

    def flush(self) -> None:
        """Block until all records are synced. Raises StorageError."""
        ...

    def producer_replay(self) -> ProducerReplay:
        """Return an object whose method `run` rebuilds the producer states of the log. Raises StorageError.

        The method `run` may be called in a thread.
        """
        ...


def sync_now(log: WaitingLog) -> None:
    """Sync the log at once, for callers without an event loop. The call blocks. Raises StorageError."""
    log.flush()


def complete_truncation(log: WaitingLog) -> None:
    """Rebuild the producer states of a truncated log, and let the log accept appends. Raises StorageError.

    The caller has written the checkpoints. The call blocks.
    """
    replay = log.producer_replay()
    replay.run()
    log.known_producers.reloaded(replay)


class LogEnvironment(msgspec.Struct, frozen=True):
    """The objects and settings that all logs share. A `Segment` uses only the attributes of `SegmentEnvironment`."""

    files: FileSystem
    open_files: OpenFiles
    trash: Trash
    random: Random
    producer_id_expiration_ms: int = 86_400_000
    segment_bytes_max: int = sys.maxsize
    """The largest size of a segment, even if `segment.bytes` is higher; a larger batch gets its own segment."""
    index_pages: IndexPages = msgspec.field(default_factory=IndexPages)
    unflushed: dict[TopicPartition, None] = msgspec.field(default_factory=dict)
    """The logs that may be due for a sync, because they have rolled a segment or have a `flush.ms`."""
    producer_count: ProducerCount = msgspec.field(default_factory=ProducerCount)
    truncated: Callable[[WaitingLog], object] = complete_truncation
    """A function to call with each log that refuses appends until its truncation is complete (`truncated_logs`)."""
    disk_threads: DiskThreads = msgspec.field(default_factory=DiskThreads)
    """The threads for blocking disk calls, by log dir."""
    sync_due: Callable[[WaitingLog], object] = sync_now
    """A function that requests a sync of a log, because the log has `flush.messages` unsynced records.

    Until the sync is done, each further append to the log calls the function again.
    """


class SegmentRemoval:
    """The removal of segments from a log's directory. All files of a segment are renamed, or none. Raises OSError."""

    __slots__ = ("_environment", "_segments", "_snapshots")

    def __init__(self, environment: LogEnvironment, segments: Segments, snapshots: ProducerSnapshots) -> None:
        self._environment = environment
        self._segments = segments
        self._snapshots = snapshots

    def discard(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Remove segments from the log, one after the other; their renamed files are deleted at `due_ms`."""
        for segment in segments:
            self.retire(segment, due_ms)
            self._segments.replace([segment], [])
        self._drop_snapshots()

    def retire(self, segment: Segment, due_ms: int) -> None:
        """Rename the files of a segment now, and delete them at `due_ms`; the caller drops the segment from the log."""
        names = segment.deleted_names()
        rename_all(self._environment.files, names)
        self._delete(names, due_ms)

    def swap(self, old: list[Segment], cleaned_offsets: Collection[int], config: LogConfig, due_ms: int) -> None:
        """Replace `old` segments by compacted ones, whose synced `.cleaned` files are in the directory."""
        files, directory = self._environment.files, self._snapshots.directory
        promoted = promoted_names(files, directory, cleaned_offsets)
        deleted = [names for segment in old for names in segment.deleted_names()]
        self._rename(promoted, deleted)
        with half_done():
            finish_swap(files, directory, cleaned_offsets)
            entries = files.scan(directory)
        self._delete(deleted, due_ms)
        listed, _ = listed_segments(self._environment, directory, config, entries)
        self._segments.replace(old, [segment for segment in listed if segment.base_offset in cleaned_offsets])
        self._drop_snapshots()

    def _rename(self, promoted: list[tuple[str, str]], deleted: list[tuple[str, str]]) -> None:
        """Rename the files of the new and of the replaced segments.

        After an error, undo all renames: the next start would otherwise replace the segments.
        """
        files = self._environment.files
        try:
            rename_all(files, [*promoted, *deleted])
        except OSError:
            with suppress(OSError):
                for path, _ in promoted:
                    files.remove(path)
            raise

    def _delete(self, names: list[tuple[str, str]], due_ms: int) -> None:
        for _, path in names:
            self._environment.trash.add(path, due_ms)

    def _drop_snapshots(self) -> None:
        self._snapshots.keep_only(segment.base_offset for segment in self._segments)


def rename_all(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """Rename each old path to its new path; undo all renames after an OSError.

    Raises the OSError, or HalfDone if a rename cannot be undone.
    """
    for number, (old, new) in enumerate(names):
        try:
            files.rename(old, new)
        except OSError:
            _rename_back(files, names[:number])
            raise


def _rename_back(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """Undo the renames, the last one first, so that a crash never leaves a later rename without the earlier ones."""
    for old, new in reversed(names):
        with half_done():
            files.rename(new, old)
