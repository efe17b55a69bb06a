"""The moves of a broker's logs between its log dirs (KIP-113).

The move of a log to another log dir while it is in use (AlterReplicaLogDirs, KIP-113), in small steps. The steps
are `begin`, `copy` until the lag is small, `sync` in a thread, `copy` again, and `swap`. The copy grows in a
directory with the suffix `-future`, and `swap` renames this directory to the name of the log. After a crash, the
broker uses the original log if its directory still has the name of the log, or else the complete copy.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final
from uuid import UUID

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import encode_partition_metadata
from barnabas_broker.storage.disk.files import LogFile
from barnabas_broker.storage.errors import LogDirFailed, StorageError, disk_access, disk_errors
from barnabas_broker.storage.log_dirs.log_dir import LogDir, online_log
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_loader import open_log, write_pending
from barnabas_broker.storage.logs.log_syncs import TOUCHED_BY_NO_ONE, LogEnvironment, LogPlace
from barnabas_broker.storage.segments.segment import Segment
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.placement import choose_log_dir
from barnabas_core.topic_partition import TopicPartition


class ReplicaMove:
    """The move of a log to another log dir. A StorageError names the log dir that failed: the source or the target."""

    def __init__(self, environment: LogEnvironment, log: Log, log_dir: str, unique: UUID) -> None:
        self.log = log
        self.log_dir = log_dir
        self.directory = f"{log_dir}/{checkpoints.marked_dir(log.topic_partition, unique, checkpoints.FUTURE_DIR)}"
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
            if bytes_max <= 0:
                break
            if segment not in self._sealed:
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
            for suffix in checkpoints.SEGMENT_SUFFIXES:
                self._environment.files.remove(self._path(segment, suffix))

    def _copy_from(self, segment: Segment, bytes_max: int) -> int:
        file = self._files.get(segment)
        if file is None:
            file = self._files[segment] = self._environment.files.open_file(self._path(segment, checkpoints.LOG))
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
        for suffix in checkpoints.INDEX_SUFFIXES:
            self._copy_file(checkpoints.segment_file(segment.base_offset, suffix))

    def _copy_file(self, name: str) -> None:
        data = self._read(name)
        if data is not None:
            self._environment.files.write_atomically(f"{self.directory}/{name}", data, sync=True)

    def _write_topic_id(self) -> None:
        """Write `log.topic_id` to the new directory. The current directory may lack the file, if its disk was full."""
        if self.log.topic_id is not None:
            data = encode_partition_metadata(self.log.topic_id)
            self._environment.files.write_atomically(
                f"{self.directory}/{checkpoints.PARTITION_METADATA}", data, sync=True
            )

    def _read(self, name: str) -> bytes | None:
        """Return the content of a small file in the log's directory, or None if the file does not exist."""
        with self._blaming_the_source(), suppress(FileNotFoundError):
            return self._environment.files.read(f"{self.log.directory}/{name}")
        return None

    def _blaming_the_source(self) -> AbstractContextManager[None]:
        return disk_errors(self.log.log_dir, self.log.directory)

    def _path(self, segment: Segment, suffix: str) -> str:
        return f"{self.directory}/{checkpoints.segment_file(segment.base_offset, suffix)}"

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
        log.epochs.save_to(f"{self.directory}/{checkpoints.LEADER_EPOCHS}")  # This file marks the copy as complete.
        for directory in (self.directory, self.log_dir):
            files.sync_dir(directory)
        home = log.directory
        log.move_to(
            f"{log.log_dir}/{checkpoints.marked_dir(log.topic_partition, self._unique, checkpoints.DELETED_DIR)}"
        )
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
        name = checkpoints.marked_dir(self.log.topic_partition, self._unique, checkpoints.DELETED_DIR)
        deleted = f"{self.log_dir}/{name}"
        try:
            self._environment.files.rename(self.directory, deleted)
        except OSError:
            deleted = self.directory
        self._environment.trash.add(deleted, 0)


WISHES_MAX: Final = 100_000


class LogDirChoice:
    """The choice of a log dir for a new log: by a client's preference (KIP-113), or else by `log.dirs.placement`.

    Preferences are kept in memory only, as in Kafka. When there are too many, the oldest preferences are dropped,
    because some of the replicas may never be created.
    """

    def __init__(self, log_dirs: Sequence[LogDir], clock: Clock, placement: str, headroom_bytes: int) -> None:
        self._log_dirs = log_dirs
        self._clock = clock
        self._placement = placement
        self._headroom_bytes = headroom_bytes
        self._wishes: dict[TopicPartition, str] = {}

    def at(self, path: str) -> LogDir:
        """Return the log dir at a path. Raises ApiError: LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR if it is offline."""
        for log_dir in self._log_dirs:
            if log_dir.path == path:
                if log_dir.failure is not None:
                    raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(log_dir.failure))
                return log_dir
        allowed = ", ".join(log_dir.path for log_dir in self._log_dirs)
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"log dir {path} is unknown; the broker has the log dirs {allowed}")

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Set or replace the preferred log dir of a partition. Raises ApiError if the log dir is unknown or offline."""
        wanted = self.at(path).path
        self.forget(topic_partition)
        self._wishes[topic_partition] = wanted
        if len(self._wishes) > WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget the preferred log dir of a partition, if the partition has one."""
        self._wishes.pop(topic_partition, None)

    def choose(self, topic_partition: TopicPartition) -> LogDir:
        """Return the preferred log dir if it is online, or else the log dir that `log.dirs.placement` selects.

        Forgets the preferred log dir in both cases. Raises ApiError if no log dir is online.
        """
        online = [log_dir for log_dir in self._log_dirs if log_dir.is_online]
        wished = self._wishes.pop(topic_partition, None)
        for log_dir in online:
            if log_dir.path == wished or len(online) == 1:
                return log_dir
        now_ms = self._clock.now_ms()
        loads = [log_dir.load(now_ms) for log_dir in online]
        return self.at(choose_log_dir(self._placement, loads, self._headroom_bytes))


class ReplicaMoves:
    """The moves of replicas between log dirs.

    The caller of `start` carries out the move: it calls `copy` until the lag is small, `sync` in a thread, then
    `finish`.
    """

    def __init__(
        self,
        environment: LogEnvironment,
        clock: Clock,
        choice: LogDirChoice,
        log_dirs: Sequence[LogDir],
    ) -> None:
        self._environment = environment
        self._clock = clock
        self._choice = choice
        self._log_dirs = log_dirs
        self.under_way: dict[TopicPartition, ReplicaMove] = {}
        self.interrupted: dict[TopicPartition, str] = {}
        """The target log dir, by partition, of each move that a stop of the broker has interrupted.

        `LogMover.resume` starts these moves again.
        """

    def start(self, topic_partition: TopicPartition, log_dir: str) -> ReplicaMove | None:
        """Begin to move a log to the log dir at a path; return None if that log dir has the log already.

        The current move of the log is cancelled in both cases. Raises StorageError, and ApiError if the log or the log
        dir is unknown, or if the log dir is offline or already has a directory of the log's name.
        """
        target, log = self._choice.at(log_dir), online_log(self._log_dirs, topic_partition)
        if log is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{topic_partition} is not on this broker")
        if log.log_dir != target.path:
            self._check_free(target.path, topic_partition)
            # `_check_free` found no directory of this partition, so a note of a damaged log there is out of date.
            target.damaged.pop(topic_partition, None)
        self.stop(topic_partition)
        if log.log_dir == target.path:
            return None
        unique = kafka_uuid.random_uuid(self._environment.random.getrandbits)
        move = ReplicaMove(self._environment, log, target.path, unique)
        move.begin()
        self.under_way[topic_partition] = move
        return move

    def _check_free(self, log_dir: str, topic_partition: TopicPartition) -> None:
        """Raise ApiError if the directory for the finished copy already exists, and StorageError if the disk fails."""
        directory = f"{log_dir}/{topic_partition}"
        with disk_errors(log_dir, directory):
            is_there = self._environment.files.exists(directory)
        if is_there:
            message = (
                f"the directory {directory} exists already, but no log could be loaded from it; move the "
                f"directory away first"
            )
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, message)

    def stop(self, topic_partition: TopicPartition) -> None:
        """Cancel the move of a partition, if there is one."""
        move = self.under_way.pop(topic_partition, None)
        if move is not None:
            move.abandon()

    def sync(self, move: ReplicaMove) -> None:
        """Sync the copy, and remove checkpoint entries of an earlier log with the same name. Raises StorageError.

        The call blocks, so it must run in a thread, before `finish`.
        """
        move.sync()
        target = self._choice.at(move.log_dir)
        if target.begin_log(move.log.topic_partition):
            target.rewrite_checkpoints()

    def finish(self, move: ReplicaMove) -> Log:
        """Replace the log by its copy, and return the new log.

        The call blocks while it copies the last records, so the lag of the copy should be small.
        """
        topic_partition = move.log.topic_partition
        source, target = self._choice.at(move.log.log_dir), self._choice.at(move.log_dir)
        log = target.logs[topic_partition] = move.swap(self._clock.now_ms())
        source.forget(topic_partition)
        del self.under_way[topic_partition]
        return log

    def dir_failed(self, log_dir: str) -> None:
        """Stop the moves from and to a log dir."""
        for move in list(self.under_way.values()):
            if log_dir in (move.log_dir, move.log.log_dir):
                self.stop(move.log.topic_partition)
