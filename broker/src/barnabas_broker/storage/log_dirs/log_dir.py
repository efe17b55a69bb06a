"""A log dir: its owner, its checkpoints, and the state of its disk."""

from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from threading import Lock
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import (
    LastIncarnation,
    MetaProperties,
    decode_clean_mark,
    decode_meta_properties,
    decode_offsets,
    encode_clean_mark,
    encode_meta_properties,
    encode_offsets,
)
from barnabas_broker.storage.disk.files import DiskUsage, FileSystem, LogFile
from barnabas_broker.storage.errors import LogDirFailed, LogDirRefused, StorageError, disk_access
from barnabas_broker.storage.logs.log import Log
from barnabas_core.placement import LogDirLoad
from barnabas_core.topic_partition import TopicPartition


class Kept(Enum):
    """The result of the check whether a log has lost acknowledged records.

    ALL means that no record is lost. SYNCED means that the log acknowledged only synced records: no record is lost,
    unless the disk was replaced by an older copy. SOME means that acknowledged records may be lost.
    """

    ALL = "all"
    SYNCED = "what was synced"
    SOME = "some"


class KeptRecords:
    """The losses of acknowledged records in a log dir; they are known once the logs are loaded."""

    def __init__(self) -> None:
        self.may_lack_unsynced = False
        """True if records that an earlier process of this broker wrote without a sync may be lost."""
        self.cut: set[TopicPartition] = set()
        """The logs that became shorter when they were loaded after a failed sync, because unsynced data was lost."""
        self.promised: Container[TopicPartition] = ()
        """The logs that acknowledged only synced records."""

    def of(self, topic_partition: TopicPartition, log_end_offset: int) -> Kept:
        """Return SOME if the log may have lost acknowledged records, SYNCED if only unacknowledged ones, otherwise ALL.

        An empty log counts as SYNCED, because a log syncs its first records before it acknowledges them.
        """
        if topic_partition in self.cut:
            return Kept.SOME
        if not self.may_lack_unsynced:
            return Kept.ALL
        return Kept.SYNCED if topic_partition in self.promised or log_end_offset == 0 else Kept.SOME


def offset_of_each(
    logs: dict[TopicPartition, Log], offset_of: Callable[[Log], int | None]
) -> dict[TopicPartition, int]:
    """Return the offset of each log, without logs for which `offset_of` returns None.

    A thread may call this function while the event loop adds and removes logs, so the function copies the dictionary
    first, which is atomic. `list(logs.items())` is not atomic: its new tuples may start the garbage collector, during
    which the thread of the event loop may change the dictionary.
    """
    return {key: offset for key, log in logs.copy().items() if (offset := offset_of(log)) is not None}


def raised_start(log: Log) -> int | None:
    """Return the log start offset if it is above the base offset of the first segment, else None."""
    return log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None


def load_clean_offset(log: Log, checkpointed: int) -> bool:
    """Set `clean_until` of a log from its checkpoint; return True if the checkpointed offset is above the log's end.

    A log that ends below its checkpointed offset refuses appends until the checkpoint is rewritten.
    """
    log.compaction.ended(min(checkpointed, log.log_end_offset))
    if checkpointed > log.log_end_offset:
        log.known_producers.hold_back(until_checkpointed=True)
    return checkpointed > log.log_end_offset


class BrokerIdentity(NamedTuple):
    """The cluster id and broker id of the broker to which a log dir belongs."""

    cluster_id: str
    node_id: int


def checked_owner(files: FileSystem, log_dir: str, identity: BrokerIdentity, new_uuid: Callable[[], UUID]) -> UUID:
    """Return the id of this broker's log dir. A new dir gets a meta.properties with a new id.

    Raises OSError. Raises LogDirFailed if meta.properties is damaged, and LogDirRefused if another broker owns the dir.
    """
    path = f"{log_dir}/{checkpoints.META_PROPERTIES}"
    if not files.exists(path):
        meta = MetaProperties(identity.cluster_id, identity.node_id, new_uuid())
        files.write_atomically(path, encode_meta_properties(meta), sync=True)
        return meta.directory_id
    try:
        meta = decode_meta_properties(files.read(path))
    except ValueError as error:
        raise LogDirFailed(
            log_dir, f"{checkpoints.META_PROPERTIES} cannot be read: {error}; repair the file"
        ) from error
    if (meta.cluster_id, meta.node_id) != identity:
        raise LogDirRefused(
            log_dir,
            f"the log dir belongs to node.id={meta.node_id} of cluster.id={meta.cluster_id}; "
            f"this broker is node.id={identity.node_id} of cluster.id={identity.cluster_id}",
        )
    return meta.directory_id


FULL_BELOW_BYTES: Final = 1 << 20
"""The free space below which a log dir counts as full: about the default of max.message.bytes."""
MEASURED_MS: Final = 1_000


HighWatermarkOf = Callable[[Log], int | None]
"""A function that returns a log's high watermark, or None if it is unknown. The function is called in a thread."""


class LogDirState(Enum):
    """The state of a log dir. FULL means reads but no appends; OFFLINE means neither."""

    ONLINE = "online"
    FULL = "full"
    OFFLINE = "offline"


class _Measured(msgspec.Struct, frozen=True):
    """The number and total size of the logs at the time `at_ms`."""

    at_ms: int
    partitions: int
    empty_partitions: int
    log_bytes: int


class LogDir:
    """A log dir with its loaded logs. `failure` is the reason why the log dir is offline; None while it is online."""

    def __init__(self, files: FileSystem, path: str) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.failure: StorageError | None = None
        self.last_failure: StorageError | None = None
        """The latest failure, which is also kept after the log dir is online again."""
        self.directory_id: UUID | None = None
        self.was_clean = False
        """True if the previous broker process shut down cleanly; known once the logs are loaded."""
        self.kept = KeptRecords()
        """The losses of acknowledged records that were found when the logs were loaded."""
        self.damaged: dict[TopicPartition, StorageError] = {}
        """The errors of logs that could not be loaded. Their checkpoint entries stay for the next start."""
        self.has_all_logs = False
        """True if all logs of the dir are loaded. Otherwise an offline dir gets no checkpoint: it would lack logs."""
        self._files = files
        self._measured = _Measured(-MEASURED_MS, 0, 0, 0)
        self._lock: LogFile | None = None
        self._writing = Lock()
        self._written: dict[str, Mapping[TopicPartition, int]] = {}
        """The checkpoints as they are on the disk, by file name."""
        self._begun: set[TopicPartition] = set()
        """The new logs for which the checkpoint files may still list offsets of a deleted log with the same name."""
        self._gone: set[TopicPartition] = set()
        """The logs that were removed while a checkpoint was being written; the checkpoint may still list them."""

    log_dir = property(lambda self: self.path)
    directory = property(lambda self: self.path)

    @property
    def is_online(self) -> bool:
        """True if no failure has taken the log dir offline."""
        return self.failure is None

    @property
    def state(self) -> LogDirState:
        """Return the state; it depends on the current free space, so a full dir becomes online without a restart."""
        if self.failure is not None:
            return LogDirState.OFFLINE
        return LogDirState.FULL if self.usage().usable_bytes < FULL_BELOW_BYTES else LogDirState.ONLINE

    @property
    def size_bytes(self) -> int:
        """The bytes of all logs in the dir."""
        return sum(log.segments.size_bytes for log in self.logs.values())

    def load(self, now_ms: int) -> LogDirLoad:
        """Return the number and size of the logs and the free space, for the choice of a log dir.

        Log sizes are up to a second old, because measuring many logs takes time.
        """
        if not 0 <= now_ms - self._measured.at_ms < MEASURED_MS:
            sizes = [log.segments.size_bytes for log in self.logs.values()]
            self._measured = _Measured(now_ms, len(sizes), sizes.count(0), sum(sizes))
        measured, count = self._measured, len(self.logs)
        empty = measured.empty_partitions + max(0, count - measured.partitions)
        return LogDirLoad(self.path, count, empty, measured.log_bytes, self.usage().usable_bytes)

    @disk_access
    def usage(self) -> DiskUsage:
        """Return the total and the usable bytes of the disk."""
        return self._files.usage(self.path)

    @disk_access
    def open(self, identity: BrokerIdentity, new_uuid: Callable[[], UUID]) -> None:
        """Create the directory if it is missing, lock it, check that this broker owns it, and set `directory_id`.

        Raises LogDirRefused if another process has locked the directory or another broker owns it. Raises another
        StorageError if the disk fails or meta.properties is damaged.
        """
        self._files.make_dir(self.path)
        try:
            self._lock = self._files.lock(f"{self.path}/{checkpoints.LOCK}")
        except BlockingIOError as error:
            raise LogDirRefused(self.path, "another process has locked the log dir: is it another broker?") from error
        self.directory_id = checked_owner(self._files, self.path, identity, new_uuid)

    def fail(self, failure: StorageError) -> None:
        """Take the log dir offline, unlock it, and drop its logs; responses in flight can still read the logs' files.

        A marker file warns the next process that the page cache may show data that never reached the disk. If the log
        dir belongs to another broker, no marker file is written.
        """
        self.failure = self.last_failure = failure
        self.has_all_logs = False
        if not isinstance(failure, LogDirRefused):
            with suppress(OSError):
                self._files.open_file(f"{self.path}/{checkpoints.SYNC_FAILED}")
        self._lock = None
        for log in self.logs.values():
            log.epochs.abandon()
            log.segments.close_files()
        self.logs = {}

    @disk_access
    def has_failed(self) -> bool:
        """True if the disk failed, in this process or an earlier one, and the data has not been rewritten since."""
        return self.failure is not None or self._files.exists(f"{self.path}/{checkpoints.SYNC_FAILED}")

    @disk_access
    def is_rewritten(self) -> None:
        """Remove the file that marks a failed sync, after all data that the sync may have lost was written again."""
        self._files.remove(f"{self.path}/{checkpoints.SYNC_FAILED}")

    @disk_access
    def check(self) -> None:
        """Raise LogDirFailed unless the directory and its meta.properties exist."""
        if not self._files.exists(f"{self.path}/{checkpoints.META_PROPERTIES}"):
            raise LogDirFailed(self.path, "the directory or its meta.properties is gone: is its disk mounted?")

    def problems(self) -> list[StorageError]:
        """Return a list with the error that `check` raises, or an empty list."""
        try:
            self.check()
        except StorageError as error:
            return [error]
        return []

    @disk_access
    def offsets(self, file_name: str) -> dict[TopicPartition, int]:
        """Return the offsets in a checkpoint. A missing or damaged checkpoint counts as empty.

        Recovery then has to read more of the logs.
        """
        try:
            offsets = decode_offsets(self._files.read(f"{self.path}/{file_name}"))
        except (FileNotFoundError, ValueError):
            offsets = {}
        self._written[file_name] = offsets
        return offsets

    @disk_access
    def rename_damaged(self, topic_partition: TopicPartition, directory: str) -> None:
        """Rename the directory of a log that could not be loaded, and forget the log's error. Raises StorageError."""
        self._files.rename(f"{self.path}/{topic_partition}", directory)
        del self.damaged[topic_partition]

    def forget(self, topic_partition: TopicPartition) -> None:
        """Drop a log that is no longer in this log dir."""
        if self.logs.pop(topic_partition, None) is not None and self._writing.locked():
            self._gone.add(topic_partition)

    def begin_log(self, topic_partition: TopicPartition) -> bool:
        """Return True if the checkpoint files may still list an earlier log with the same name as the new log.

        The new log must then refuse appends until `rewrite_checkpoints` has removed the entries of the earlier log.
        """
        # Read `_gone` first: a thread adds the log to `_written` before it clears `_gone`, so one read finds the log.
        is_gone = topic_partition in self._gone
        is_known = is_gone or any(topic_partition in offsets for offsets in self._written.copy().values())
        if is_known:
            self._begun.add(topic_partition)
        return is_known

    def checkpointed(self, file_name: str, topic_partition: TopicPartition) -> int:
        """Return the offset of a log in a checkpoint on the disk, or 0 if the checkpoint has no entry."""
        return self._written.get(file_name, {}).get(topic_partition, 0)

    def checkpoint_calls(self, high_watermark_of: HighWatermarkOf) -> list[Callable[[], None]]:
        """Return functions that each write one of the checkpoint files; the caller runs them in a thread.

        The functions raise StorageError if the disk fails, or if the logs of an offline log dir are not loaded.
        """
        return [
            self.checkpoint_recovery_points,
            self.checkpoint_clean_offsets,
            self._checkpoint_synced_logs,
            self._checkpoint_log_starts,
            partial(self.checkpoint_high_watermarks, high_watermark_of),
        ]

    def checkpoint_high_watermarks(self, high_watermark_of: HighWatermarkOf) -> None:
        """Write the current high watermarks of the log dir's logs. Raises StorageError.

        If a high watermark is not known, for example right after its log dir came back online, the checkpoint keeps
        the last known one.
        """
        with self._writing:
            written, begun = self._written.get(checkpoints.HIGH_WATERMARKS, {}), self._begun.copy()

            def known(log: Log) -> int | None:
                found, key = high_watermark_of(log), log.topic_partition
                if found is None and key in written and key not in begun:
                    return min(written[key], log.log_end_offset)
                return found

            self._write_offset_of_each(checkpoints.HIGH_WATERMARKS, known)

    def checkpoint_recovery_points(self) -> None:
        """Write the current recovery point of each log. Raises StorageError.

        At the next start, records below the recovery point count as synced, and are not checked. If a log was truncated
        below its stored recovery point, the stored recovery point must therefore be lowered.
        """
        with self._writing:
            self._write_offset_of_each(checkpoints.RECOVERY_POINTS, lambda log: log.syncs.recovery_point)

    def rewrite_checkpoints(self) -> None:
        """Write all checkpoints after a truncation or deletion of logs. Raises StorageError.

        After a restart, older checkpoints would present removed offsets as committed, synced, compacted or deleted.
        """
        self._lower_high_watermarks()
        self.checkpoint_recovery_points()
        self.checkpoint_clean_offsets()
        self._checkpoint_synced_logs()
        self._checkpoint_log_starts()

    def _lower_high_watermarks(self) -> None:
        """Lower stored high watermarks of truncated logs; remove those of deleted logs whose names new logs have."""
        with self._writing:
            begun, logs = self._begun.copy(), self.logs.copy()
            offsets = self._written.get(checkpoints.HIGH_WATERMARKS, {})
            lowered = {
                key: min(offset, logs[key].log_end_offset) if key in logs else offset
                for key, offset in offsets.items()
                if key not in begun
            }
            if lowered != offsets:
                self._write_offsets(checkpoints.HIGH_WATERMARKS, lowered)
            self._begun -= begun

    def _checkpoint_log_starts(self) -> None:
        """Write the checkpoint of log start offsets, if it has changed. Raises StorageError.

        The checkpoint lists the logs that start above the base offset of their first segment. When the broker starts,
        it empties a log whose end is below its listed start offset, so a truncation must also lower the listed offset.
        """
        self._checkpoint_if_changed(checkpoints.LOG_START_OFFSETS, raised_start)

    def checkpoint_clean_offsets(self) -> None:
        """Write the offset up to which each log is compacted, if it has changed. Raises StorageError.

        The next compaction reads keys only from this offset on, so a truncation below the offset must lower the offset.
        """
        self._checkpoint_if_changed(checkpoints.CLEAN_OFFSETS, lambda log: log.compaction.clean_until)

    def _checkpoint_synced_logs(self) -> None:
        """Write the list of logs that acknowledge only synced records, if it has changed. Raises StorageError.

        A log that was removed from the list must sync before it acknowledges, until the new list is on the disk.
        """
        before = self._written.get(checkpoints.SYNCED_LOGS, {})
        now = self._checkpoint_if_changed(
            checkpoints.SYNCED_LOGS,
            lambda log: 1 if log.promises_synced(before=log.topic_partition in before) else None,
        )
        for log in [log for key, log in self.logs.copy().items() if key not in now]:
            log.syncs.withdraw_promise()

    def _checkpoint_if_changed(
        self, file_name: str, offset_of: Callable[[Log], int | None]
    ) -> Mapping[TopicPartition, int]:
        """Return `offset_of(log)` of all logs; write the offsets to a checkpoint file if they have changed."""
        with self._writing:
            offsets = self._offsets_to_write(file_name, offset_of)
            if offsets != self._written.get(file_name, {}):
                self._write_offsets(file_name, offsets)
        return offsets

    def take_clean_offsets(self) -> list[Log]:
        """Set the `clean_until` of each loaded log from the checkpoint. Raises StorageError.

        Returns the logs that end below their checkpointed offset. These logs refuse appends until the checkpoint has
        been rewritten.
        """
        offsets = self.offsets(checkpoints.CLEAN_OFFSETS).items()
        return [log for key, offset in offsets if (log := self.logs.get(key)) and load_clean_offset(log, offset)]

    def _write_offset_of_each(self, file_name: str, offset_of: Callable[[Log], int | None]) -> None:
        self._write_offsets(file_name, self._offsets_to_write(file_name, offset_of))

    def _offsets_to_write(self, file_name: str, offset_of: Callable[[Log], int | None]) -> dict[TopicPartition, int]:
        self._check_complete()
        self._gone.clear()  # Forget the removed logs, because the new checkpoint will not list them.
        written = self._written.get(file_name, {})
        damaged = {key: written[key] for key in self.damaged.copy() if key in written}
        return damaged | offset_of_each(self.logs, offset_of)

    @disk_access
    def _write_offsets(self, file_name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self._check_complete()
        self._files.write_atomically(f"{self.path}/{file_name}", encode_offsets(offsets), sync=True)
        self._written[file_name] = offsets

    def _check_complete(self) -> None:
        """Raise the error of an offline log dir with unloaded logs, because a checkpoint would lack these logs."""
        if (failure := self.failure) is not None and not self.has_all_logs:
            raise failure

    def checkpoint(self, high_watermark_of: HighWatermarkOf) -> None:
        """Write the checkpoints now. Raises StorageError."""
        for call in self.checkpoint_calls(high_watermark_of):
            call()

    @disk_access
    def mark_clean(self, broker_epoch: int) -> None:
        """Write the clean shutdown marker with the broker epoch, and unlock the log dir.

        A log dir whose logs lost records in a failed sync gets no marker, because the broker's registration may not
        show the loss yet.
        """
        if not self.kept.cut:
            mark = encode_clean_mark(broker_epoch)
            self._files.write_atomically(f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}", mark, sync=True)
        self._lock = None

    @disk_access
    def take_clean_mark(self, last: LastIncarnation) -> int | None:
        """Read and remove the clean shutdown marker; return the time of the clean shutdown (ns), or None.

        Sets `was_clean` and `may_lack_unsynced`. A marker is ignored if its broker epoch is not in `last.mark_epochs`,
        because the disk may be an older copy.
        """
        found_ns = self._take_clean_mark(last)
        self.was_clean = found_ns is not None
        ran_on = last.machine_ran_on and self.directory_id not in last.cut_dirs
        self.kept.may_lack_unsynced = not (self.was_clean or ran_on)
        return found_ns

    def _take_clean_mark(self, last: LastIncarnation) -> int | None:
        path = f"{self.path}/{checkpoints.CLEAN_SHUTDOWN}"
        found = next((each for each in self._files.scan(self.path) if each.name == checkpoints.CLEAN_SHUTDOWN), None)
        if found is None:
            return None
        counts = self._epoch_in(path) in last.mark_epochs
        self._files.remove(path)
        self._files.sync_dir(self.path)
        return found.modified_ns if counts else None

    def _epoch_in(self, mark_path: str) -> int | None:
        try:
            return decode_clean_mark(self._files.read(mark_path))
        except ValueError:
            return None


def online_log(log_dirs: Iterable[LogDir], topic_partition: TopicPartition) -> Log | None:
    """Return the log of a partition, or None if no online log dir has it."""
    # An offline log dir may list logs that a thread is still loading; they must not be used yet.
    found = ((each, each.logs.get(topic_partition)) for each in log_dirs)
    return next((log for each, log in found if log is not None and each.is_online), None)
