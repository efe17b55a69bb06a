"""The files of a partition's log and their syncs: flush, clean shutdown, rename.

Everything below the recovery point is on the disk. The subclass `Log` adds changes and reads.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from uuid import UUID

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.disk.flush_job import FlushJob
from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.leader_epochs import LeaderEpochs
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_broker.storage.logs.log_offsets import LogOffsets
from barnabas_broker.storage.logs.log_syncs import LogSyncs
from barnabas_broker.storage.producer_state.log_producers import LogProducers
from barnabas_broker.storage.producer_state.producer_snapshots import ProducerSnapshots
from barnabas_broker.storage.producer_state.producers import ProducerStates
from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segments import Segments
from barnabas_core.config.log_config import LONG_MAX, LogConfig
from barnabas_core.topic_partition import TopicPartition


class LogFiles:
    """The segments, epochs and producers of one log. After the constructor, `configure` has to be called."""

    __slots__ = (
        "__weakref__",
        "_config",
        "_environment",
        "_epochs",
        "_flushed_ms",
        "_renames",
        "directory",
        "files",
        "known_producers",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "segments",
        "syncs",
        "topic_id",
        "topic_partition",
        "truncations",
        "was_recovered",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        log_dir: str,
        directory: str,
        topic_partition: TopicPartition,
        segments: list[Segment],
        snapshots: ProducerSnapshots,
        offsets: LogOffsets,
    ) -> None:
        self.topic_id: UUID | None = None
        """The topic id in `partition.metadata`; None if the file is missing."""
        self.topic_partition = topic_partition
        self.log_dir = log_dir
        self.directory = directory
        self.log_start_offset, self.log_end_offset, recovery_point = offsets
        self.segments = Segments(segments)
        self.syncs = LogSyncs(self.segments, recovery_point)
        self._environment = environment
        self.files: FileSystem = environment.files
        self._config: LogConfig
        self._epochs: LeaderEpochs | None = None
        self.known_producers = LogProducers(self.segments, snapshots, environment.producer_count)
        self.truncations = 0
        """The number of truncations. Data that was read before a truncation may have changed."""
        self.was_recovered = False
        """True if the log was loaded after a crash, in which case its last truncation may be unsynced."""
        self._flushed_ms = 0
        self._renames = 0

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""
        return self._config

    def configure(self, config: LogConfig) -> None:
        """Apply new settings of the topic."""
        self._config = config
        self.syncs.configure(config.flush_messages)
        if self.log_end_offset >= self.syncs.due_at:
            self.await_sync(self.log_end_offset)
        if self._config.flush_ms != LONG_MAX:
            self._mark_unflushed()

    def promises_synced(self, *, before: bool) -> bool:
        """True if every record is synced before it is acknowledged, now and later. Called for a checkpoint in a thread.

        `before` is True if the checkpoint already lists the log. The event loop may raise `flush.messages` at the same
        time. This method sets the promise to sync before it reads `flush.messages`, and the event loop sets
        `flush.messages` before it reads the promise, so at least one of them sees the change of the other.
        """
        if self._config.flush_messages != 1:
            return False
        self.syncs.promise()
        is_synced = before or self.ack_end_offset <= self.syncs.recovery_point
        return is_synced and self._config.flush_messages == 1

    def _mark_unflushed(self) -> None:
        self._environment.unflushed[self.topic_partition] = None

    @property
    def threads(self) -> Executor:
        """The threads of the log dir, for blocking disk calls."""
        return self._environment.disk_threads.of(self.log_dir)

    @property
    def size_bytes(self) -> int:
        """The bytes of all `.log` files."""
        return self.segments.size_bytes

    @property
    def epochs(self) -> LeaderEpochs:
        """The leader epochs and their start offsets."""
        return self._epochs or self._load_epochs(self.log_end_offset)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers of the log."""
        return self.known_producers.states or self._load_producers()

    @property
    def ack_end_offset(self) -> int:
        """The end offset of the records that need no sync before they are acknowledged."""
        return self.log_end_offset if self.syncs.unsynced_from is None else self.syncs.unsynced_from

    def await_sync(self, offset: int) -> None:
        """Request a sync, and acknowledge nothing from `offset` on before it, because `flush.messages` is reached."""
        self.syncs.wait_from(offset)
        self._environment.sync_due(self)

    @property
    def takes_appends(self) -> bool:
        """True unless a truncation is incomplete, or the checkpoints must be rewritten first."""
        return not self.known_producers.are_held_back

    @disk_access
    def _load_epochs(self, end_offset: int) -> LeaderEpochs:
        path, start = f"{self.directory}/{file_names.LEADER_EPOCHS}", self.log_start_offset
        batches = self.segments.batches_from(start) if self.size_bytes else iter(())
        epochs = self._epochs = LeaderEpochs.load(self.files, path, start, batches)
        epochs.truncate_from_end(end_offset)
        epochs.truncate_from_start(start)
        return epochs

    @disk_access
    def _load_producers(self) -> ProducerStates:
        return self.known_producers.load(self.log_start_offset, self.log_end_offset)

    @disk_access
    def flush_job(self, offset: int | None = None) -> FlushJob | None:
        """Return a job that syncs the log below `offset` (the end of a batch), or all of the log by default.

        Returns None if these records are synced already.
        """
        end = self.log_end_offset if offset is None else min(offset, self.log_end_offset)
        if end <= self.syncs.recovery_point:
            return None
        self.syncs.begun(end)
        return FlushJob(self.log_dir, self.directory, self._sync_calls(end), end, self.truncations, self._renames)

    def _sync_calls(self, end_offset: int) -> tuple[Callable[[], None], ...]:
        """Return the calls that sync everything below `end_offset`: first the files, then the directory."""
        files = self.files
        segments = [each for each in self._unsynced_segments() if each.base_offset < end_offset]
        calls = [call for segment in segments for call in segment.sync_calls()]
        small = (self.known_producers.snapshots.latest_path, f"{self.directory}/{file_names.PARTITION_METADATA}")
        calls += [files.open_file(path).sync for path in small if files.exists(path)]
        save_epochs = self.epochs.save_call()
        return (*calls, *([save_epochs] if save_epochs else []), partial(files.sync_dir, self.directory))

    def _unsynced_segments(self) -> list[Segment]:
        """Return the unsynced segments, and a segment that may have an unsynced truncation at the recovery point."""
        may_be_cut = self.truncations or self.was_recovered
        recovery_point = self.syncs.recovery_point
        return self.segments.starting_at(recovery_point - 1 if may_be_cut else recovery_point)

    def due_flush(self, now_ms: int) -> FlushJob | None:
        """Return a sync of the rolled segments, or of the whole log after `flush.ms`. Returns None if no sync is due.

        The caller runs the sync and passes it to `flushed`.
        """
        if self.syncs.recovery_point == self.log_end_offset:
            self._flushed_ms = now_ms
        elif now_ms - self._flushed_ms >= self._config.flush_ms:
            self._flushed_ms = now_ms
            return self.flush_job()
        job = self.flush_job(self.segments.active.base_offset)
        if job is None and self._config.flush_ms == LONG_MAX:
            self._environment.unflushed.pop(self.topic_partition, None)
        return job

    def flushed(self, job: FlushJob) -> None:
        """Raise the recovery point after the job has run, unless the log was truncated or renamed meanwhile.

        After a rename of the directory, the file names may be unsynced.
        """
        self.syncs.ended(self.log_end_offset)
        if (job.truncations, job.renames) == (self.truncations, self._renames):
            self.syncs.synced_until(job.recovery_point, self.log_end_offset)

    def flush(self, offset: int | None = None) -> None:
        """Block until everything below `offset` is synced."""
        job = self.flush_job(offset)
        if job:
            job.run()
            self.flushed(job)

    @disk_access
    def closing_job(self) -> FlushJob | None:
        """Return the sync of everything for a clean shutdown, after writing a snapshot of the producers."""
        self.write_pending()
        job = self.flush_job()
        return self._with_cut(job) if self.truncations or self.was_recovered else job

    def _with_cut(self, job: FlushJob | None) -> FlushJob:
        """Add syncs of truncated files and the directory, which a start after a clean shutdown does not check."""
        segments = [each for each in self._unsynced_segments() if self.files.exists(each.path(file_names.LOG))]
        calls: list[Callable[[], None]] = [each.file.sync for each in segments]
        calls.append(partial(self.files.sync_dir, self.directory))
        before = () if job is None else job.calls
        end = self.log_end_offset
        return FlushJob(self.log_dir, self.directory, (*before, *calls), end, self.truncations, self._renames)

    @disk_access
    def write_pending(self) -> None:
        """Write the pending index entries, and a snapshot of the producers at the log's end."""
        self.known_producers.write_snapshot(self.log_end_offset)
        self.segments.active.seal()

    def closed(self) -> None:
        """Mark the whole log as synced after the closing job has run, and close its files."""
        self.syncs.all_synced(self.log_end_offset)
        self.release_files()

    def close(self) -> None:
        """Sync everything and close the files; the next use opens them again. The call blocks."""
        job = self.closing_job()
        if job:
            job.run()
        self.closed()

    def abandon(self) -> None:
        """Stop writing after a failure of the log dir, because a new `Log` will own the files."""
        if self._epochs is not None:
            self._epochs.abandon()
        self.release_files()

    def release_files(self) -> None:
        """Close all files without writing; each file is opened again when it is used."""
        for segment in self.segments:
            segment.close_file()

    @disk_access
    def move_to(self, directory: str) -> None:
        """Rename the directory, for example to delete the log."""
        self.release_files()
        self.files.rename(self.directory, directory)
        self.directory = self.known_producers.snapshots.directory = directory
        self._renames += 1
        if self._epochs is not None:
            self._epochs.path = f"{directory}/{file_names.LEADER_EPOCHS}"
        for segment in self.segments:
            segment.moved_to(directory)
