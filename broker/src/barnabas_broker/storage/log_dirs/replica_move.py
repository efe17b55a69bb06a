"""The move of a log to another log dir while it is in use (AlterReplicaLogDirs, KIP-113), in small steps.

The steps are `begin`, `copy` until the lag is small, `sync` in a thread, `copy` again, and `swap`. The copy grows in a
directory with the suffix `-future`, and `swap` renames this directory to the name of the log. After a crash, the broker
uses the original log if its directory still has the name of the log, or else the complete copy.
"""

from contextlib import AbstractContextManager, suppress
from uuid import UUID

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.checkpoints import encode_partition_metadata
from barnabas_broker.storage.disk.files import LogFile
from barnabas_broker.storage.errors import LogDirFailed, StorageError, disk_access, disk_errors
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_closing import write_pending
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_broker.storage.logs.log_loader import open_log
from barnabas_broker.storage.logs.log_place import TOUCHED_BY_NO_ONE, LogPlace
from barnabas_broker.storage.segments.segment import Segment


class ReplicaMove:
    """The move of a log to another log dir. A StorageError names the log dir that failed: the source or the target."""

    def __init__(self, environment: LogEnvironment, log: Log, log_dir: str, unique: UUID) -> None:
        self.log = log
        self.log_dir = log_dir
        self.directory = f"{log_dir}/{file_names.marked_dir(log.topic_partition, unique, file_names.FUTURE_DIR)}"
        self._unique = unique
        self._environment = environment
        self._files: dict[Segment, LogFile] = {}
        self._sealed: set[Segment] = set()
        self._unindexed: dict[Segment, None] = {}
        """The copied segments whose indexes are not copied yet; `sync` copies them."""
        self._synced_bytes: dict[Segment, int] = {}
        """The number of synced bytes in the copy of each segment."""
        self._truncations = log.segments.truncations
        self._is_called_off = False
        self.is_kept = False
        """True if the copy must not be removed, because the original may be gone."""

    @property
    def lag_bytes(self) -> int:
        """Return the number of bytes that are not copied yet."""
        if self._truncations != self.log.segments.truncations:
            return self.log.segments.size_bytes
        copies = [self._files[segment] for segment in self.log.segments if segment in self._files]
        return self.log.segments.size_bytes - sum(file.size_bytes() for file in copies)

    @disk_access
    def begin(self) -> None:
        """Create the directory of the copy, by which the next start of the broker detects an interrupted move."""
        self._environment.files.make_dir(self.directory)

    @disk_access
    def copy(self, bytes_max: int) -> None:
        """Copy the next missing bytes, at most `bytes_max`."""
        self._forget_replaced()
        for segment in self.log.segments:
            if segment not in self._sealed and bytes_max >= 0:
                bytes_max -= self._copy_from(segment, bytes_max)

    def _forget_replaced(self) -> None:
        """Drop the copies of segments that retention or compaction has removed; after a truncation, drop all copies."""
        current = set(self.log.segments) if self._truncations == self.log.segments.truncations else set()
        self._truncations = self.log.segments.truncations
        for segment in [segment for segment in self._files if segment not in current]:
            del self._files[segment]
            self._synced_bytes.pop(segment, None)
            self._unindexed.pop(segment, None)
            self._sealed.discard(segment)
            for suffix in file_names.SEGMENT_SUFFIXES:
                self._environment.files.remove(self._path(segment, suffix))

    def _copy_from(self, segment: Segment, bytes_max: int) -> int:
        file = self._files.get(segment)
        if file is None:
            file = self._files[segment] = self._environment.files.open_file(self._path(segment, file_names.LOG))
            file.truncate(0)
        position = file.size_bytes()
        with self._blaming_the_source():
            data = segment.file.read_at(position, min(bytes_max, segment.size_bytes - position))
        file.append(data, position)
        if segment is not self.log.segments.active and position + len(data) == segment.size_bytes:
            with self._blaming_the_source():
                segment.seal()
            self._sealed.add(segment)
            self._unindexed[segment] = None
        return len(data)

    def _copy_indexes(self, segment: Segment) -> None:
        for suffix in file_names.INDEX_SUFFIXES:
            self._copy_file(file_names.segment_file(segment.base_offset, suffix))

    def _copy_file(self, name: str) -> None:
        data = self._read(name)
        if data is not None:
            self._environment.files.write_atomically(f"{self.directory}/{name}", data, sync=True)

    def _write_topic_id(self) -> None:
        """Write `log.topic_id` to the new directory. The current directory may lack the file, if its disk was full."""
        if self.log.topic_id is not None:
            data = encode_partition_metadata(self.log.topic_id)
            self._environment.files.write_atomically(
                f"{self.directory}/{file_names.PARTITION_METADATA}", data, sync=True
            )

    def _read(self, name: str) -> bytes | None:
        """Return the content of a small file in the log's directory, or None if the file does not exist."""
        with self._blaming_the_source(), suppress(FileNotFoundError):
            return self._environment.files.read(f"{self.log.directory}/{name}")
        return None

    def _blaming_the_source(self) -> AbstractContextManager[None]:
        return disk_errors(self.log.log_dir, self.log.directory)

    def _path(self, segment: Segment, suffix: str) -> str:
        return f"{self.directory}/{file_names.segment_file(segment.base_offset, suffix)}"

    @disk_access
    def sync(self) -> None:
        """Sync all copied data and copy the indexes. Runs in a thread, between calls of `copy`.

        If retention or compaction removes a segment during the call, the next `copy` removes the segment's copy. After
        `abandon`, which deletes the copy, missing files are ignored.
        """
        try:
            self._sync_copies()
        except FileNotFoundError:
            if not self._is_called_off:
                raise

    def _sync_copies(self) -> None:
        for segment in list(self._unindexed):
            self._copy_indexes(segment)
            self._unindexed.pop(segment, None)
        for segment, file in list(self._files.items()):
            size_bytes = file.size_bytes()
            if self._synced_bytes.get(segment) != size_bytes:
                file.sync()
                self._synced_bytes[segment] = size_bytes

    @disk_access
    def swap(self, now_ms: int) -> Log:
        """Copy the remaining bytes, replace the log with the copy, and return the new log. The call blocks.

        The recovery point of the new log is the log end offset, so the whole copy is synced, including the segments
        that were rolled after `sync`. The directory of the copy is synced before the old log is renamed, and the old
        log is renamed before the copy takes its name. A power failure therefore leaves either the old log or the
        complete copy. If the target's disk fails, the old log is renamed back. After a successful swap, the files of
        the old log are deleted after `file.delete.delay.ms`.
        """
        log, files = self.log, self._environment.files
        self.copy(log.segments.size_bytes)
        producers = log.producers  # The new log takes over the producer state.
        write_pending(log)
        self._copy_indexes(log.segments.active)
        self._copy_file(log.known_producers.snapshots.latest_path.rsplit("/", 1)[1])
        self._write_topic_id()
        self.sync()
        log.epochs.save_to(f"{self.directory}/{file_names.LEADER_EPOCHS}")  # This file marks the copy as complete.
        for directory in (self.directory, self.log_dir):
            files.sync_dir(directory)
        home = log.directory
        log.move_to(f"{log.log_dir}/{file_names.marked_dir(log.topic_partition, self._unique, file_names.DELETED_DIR)}")
        try:
            moved = self._take_its_place(now_ms)
        except (OSError, StorageError):
            self._go_back(home)
            raise
        self._environment.trash.add(log.directory, now_ms + log.config.file_delete_delay_ms)
        moved.take_over(log, producers)
        return moved

    def _go_back(self, home: str) -> None:
        """Rename the log from its `-delete` name back to its own name. Raises LogDirFailed if the rename fails.

        After LogDirFailed, the log dir goes offline, even if its disk is only full: the log still has its `-delete`
        name, and must get no more records. The copy in the other log dir is kept.
        """
        self.is_kept = True
        try:
            self.log.move_to(home)
        except StorageError as error:
            raise LogDirFailed(error.log_dir, f"the log could not be renamed back to {home}: {error}") from error
        self.is_kept = False

    def _take_its_place(self, now_ms: int) -> Log:
        """Rename the copy to the log's name, and open it. If a disk fails, undo the rename if possible."""
        files, new = self._environment.files, f"{self.log_dir}/{self.log.topic_partition}"
        try:
            with self._blaming_the_source():
                files.sync_dir(self.log.log_dir)
            files.rename(self.directory, new)
            files.sync_dir(self.log_dir)
            return open_log(self._environment, self._place(new), now_ms)
        except (OSError, StorageError):
            with suppress(OSError):
                files.rename(new, self.directory)
            raise

    def _place(self, directory: str) -> LogPlace:
        return LogPlace(
            log_dir=self.log_dir,
            directory=directory,
            topic_partition=self.log.topic_partition,
            config=self.log.config,
            log_start_offset=self.log.log_start_offset,
            recovery_point=self.log.log_end_offset,
            clean_shutdown_ns=TOUCHED_BY_NO_ONE,
        )

    def abandon(self) -> None:
        """Cancel the move and, unless `is_kept`, delete the copy.

        The copy is renamed first, so that it cannot count as complete.
        """
        self._is_called_off = True
        self._files.clear()
        if self.is_kept:
            return
        name = file_names.marked_dir(self.log.topic_partition, self._unique, file_names.DELETED_DIR)
        deleted = f"{self.log_dir}/{name}"
        try:
            self._environment.files.rename(self.directory, deleted)
        except OSError:
            deleted = self.directory
        self._environment.trash.add(deleted, 0)
