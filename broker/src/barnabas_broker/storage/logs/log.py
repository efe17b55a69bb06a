"""The log of one partition: an ordered run of segments in one directory.

`Log` has the offsets of the log, and the methods that change the log; its parts are `segments`, `epochs`,
`known_producers`, `syncs`, `compaction`, a reader and `removal`. `truncation` and `offset_lookup` are larger operations
on a log; `log_loader` loads a log from disk, and closes it. Methods raise StorageError if the disk fails
(`disk_access`), unless they are documented to raise OSError. They raise ApiError if the request is wrong.
"""

from collections.abc import Collection
from concurrent.futures import Executor
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from barnabas_broker.storage.disk.checkpoints import ProducerSnapshots
from barnabas_broker.storage.disk.files import FileSystem, FlushJob
from barnabas_broker.storage.errors import InvalidBatch, disk_access, storage_error
from barnabas_broker.storage.logs.log_history import (
    FoundEpoch,
    LeaderEpochs,
    LogProducers,
    ProducerReplay,
    control_batches,
    record_control,
)
from barnabas_broker.storage.logs.log_syncs import LogEnvironment, LogPlace, LogSyncs, SegmentRemoval
from barnabas_broker.storage.producer_state import ProducerStates, Verification
from barnabas_broker.storage.segments.segment import Segment, SegmentSizes
from barnabas_broker.storage.segments.segments import Segments
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.record_batch import CONTROL_BIT, LENGTH_OFFSET, PLACE, BatchHeader, assign_log_append_time
from barnabas_core.config.log_config import LONG_MAX, LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode


class LogOffsets(NamedTuple):
    """The start and end offset of a log, and the recovery point, below which everything is on the disk."""

    start: int
    end: int
    recovery_point: int


class LogAppend(msgspec.Struct, frozen=True, gc=False):
    """The result of an append: the offset of the batch's first record, and the offset after its last record.

    `log_append_time_ms` is -1 unless the broker sets the timestamps. `duplicate` is True if the log already had the
    batch.
    """

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    duplicate: bool


_TAILS_KEPT: Final = 8
"""The number of recent log end offsets whose file positions are cached.

A consumer at the log's end then needs no index lookup.
"""


class LogReader:
    """The reader of one log. Raises OSError and InvalidBatch."""

    __slots__ = ("_segments", "_tails")

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._tails: dict[int, int] = {}

    def forget_tails(self) -> None:
        """Forget the cached file positions of log end offsets, because a roll or truncation has made them invalid."""
        self._tails.clear()

    def read(
        self, offset: int, length_max: int, offset_max: int, log_end_offset: int, *, at_least_one_batch: bool
    ) -> FileSlice | None:
        """Return the batch with `offset` and later batches, as `Log.read` does; the log must have `offset`."""
        tail = self._tails.get(offset)
        if tail is not None:
            segment, position, first_batch_bytes = self._segments.active, tail, 0
        else:
            located = self._segments.locate(offset)
            if located is None:
                return None
            segment, position, first_batch_bytes = located[0], located[1].position, located[1].header.size_bytes
        end = self._segments.end_position(segment, offset_max, log_end_offset)
        length = end - position
        if length > length_max:
            first_batch_bytes = first_batch_bytes or segment.batch_at(position).size_bytes
            at_least = first_batch_bytes if at_least_one_batch else 0
            length = length_max if length_max >= first_batch_bytes else at_least
        elif segment is self._segments.active and offset_max >= log_end_offset:
            self._remember_tail(log_end_offset, end)
        return FileSlice(segment.file, position, length) if length > 0 else None

    def _remember_tail(self, offset: int, position: int) -> None:
        if len(self._tails) >= _TAILS_KEPT:
            self._tails.clear()
        self._tails[offset] = position


class CompactionBounds:
    """The offsets below which compaction has, or may have, removed records of a log.

    The segments below `clean_until` are compacted. Records below `superseded_until` may be missing, too: an unfinished
    compaction has removed them, or the leader had removed them before this broker fetched its log.
    """

    __slots__ = ("clean_until", "superseded_until")

    def __init__(self) -> None:
        self.clean_until: int | None = None
        """The end offset of the log's last finished compaction; None if there was none."""
        self.superseded_until = 0
        """The offset below which compaction, on this broker or on a leader, may have removed records.

        The newer records that superseded the removed ones are below this offset, too.
        """

    @property
    def until(self) -> int:
        """The offset below which a truncation may lose all records of a key.

        Compaction has removed the older records of the key, and the truncation would remove the newest one.
        """
        return max(self.superseded_until, self.clean_until or 0)

    def superseded_below(self, offset: int) -> None:
        """Raise `superseded_until` to `offset`, because compaction may have removed records.

        The newer records with the same keys are below `offset`.
        """
        self.superseded_until = max(self.superseded_until, offset)

    def ended(self, offset: int) -> None:
        """Set `clean_until` to `offset`.

        The offset is the end offset of a compaction that has finished now or, when the log is loaded, the offset in the
        checkpoint.
        """
        self.clean_until = offset

    def lower_to(self, log_end_offset: int) -> bool:
        """Lower `superseded_until` and `clean_until` to the log end offset.

        Return True if `clean_until` was lowered. The offset in the checkpoint file may then be too high.
        """
        self.superseded_until = min(log_end_offset, self.superseded_until)
        is_lowered = self.clean_until is not None and log_end_offset < self.clean_until
        if is_lowered:
            self.clean_until = log_end_offset
        return is_lowered


class Log:
    """The log of a partition. Offsets with `end` in their names are exclusive."""

    __slots__ = (
        "__weakref__",
        "_environment",
        "_reader",
        "_stamps",
        "compaction",
        "config",
        "directory",
        "epochs",
        "files",
        "high_watermark",
        "known_producers",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "removal",
        "segments",
        "syncs",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        place: LogPlace,
        segments: list[Segment],
        snapshots: ProducerSnapshots,
        offsets: LogOffsets,
        topic_id: UUID | None,
    ) -> None:
        self.topic_id = topic_id
        """The topic id in `partition.metadata`; None if the file is missing or damaged."""
        self.topic_partition = place.topic_partition
        self.log_dir = place.log_dir
        self.directory = place.directory
        self.log_start_offset, self.log_end_offset, recovery_point = offsets
        self.high_watermark = self.log_start_offset
        """The high watermark as this replica knows it: all records below this offset are committed."""
        self._environment = environment
        self.files: FileSystem = environment.files
        self.segments = Segments(segments)
        self.epochs = LeaderEpochs(self.files, self.directory)
        self.known_producers = LogProducers(
            self.segments, snapshots, environment.producer_count, environment.producer_id_expiration_ms
        )
        self.syncs = LogSyncs(self.files, place, self.segments, snapshots, self.epochs, recovery_point)
        self.compaction = CompactionBounds()
        self._reader = LogReader(self.segments)
        self.removal = SegmentRemoval(environment, self.segments, snapshots)
        self.configure(place.config)

    def configure(self, config: LogConfig) -> None:
        """Apply new settings of the topic."""
        self.config = config
        self._stamps = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        self.syncs.configure(config)
        self.segments.active.forget_room()
        if self.log_end_offset >= self.syncs.due_at:
            self.await_sync(self.log_end_offset)
        if config.flush_ms != LONG_MAX:
            self._mark_unflushed()

    def promises_synced(self, *, before: bool) -> bool:
        """True if the checkpoint may list the log among those that acknowledge only synced records.

        `before` is True if the checkpoint already lists the log. A thread calls this method, while the event loop may
        raise `flush.messages`. The thread first sets a flag (`LogSyncs.promise`), then reads `flush.messages`; the
        event loop first sets `flush.messages`, then reads the flag. So the thread or the event loop sees the change.
        """
        if self.config.flush_messages != 1:
            return False
        self.syncs.promise()
        is_synced = before or self.syncs.ack_end_offset(self.log_end_offset) <= self.syncs.recovery_point
        return is_synced and self.config.flush_messages == 1

    def _mark_unflushed(self) -> None:
        self._environment.unflushed[self.topic_partition] = None

    def due_flush(self, now_ms: int) -> FlushJob | None:
        """Return a sync that is due, or None; the caller runs it and passes it to `syncs.flushed`."""
        job = self.syncs.due_flush(self.log_end_offset, now_ms)
        if job is None and self.config.flush_ms == LONG_MAX:
            self._environment.unflushed.pop(self.topic_partition, None)
        return job

    @property
    def threads(self) -> Executor:
        """The threads of the log dir, for blocking disk calls."""
        return self._environment.disk_threads.of(self.log_dir)

    @property
    def producers(self) -> ProducerStates:
        """The idempotent producers of the log. Raises ApiError while the log refuses appends."""
        return self.known_producers.states or self.known_producers.required()

    def await_sync(self, offset: int) -> None:
        """Request a sync because of `flush.messages`; records from `offset` on are acknowledged only after the sync."""
        self.syncs.wait_from(offset)
        self._environment.sync_due(self)

    def flush(self) -> None:
        """Sync all records, and raise the recovery point to the log's end. The call blocks."""
        job = self.syncs.flush_job(self.log_end_offset)
        if job:
            job.run()
            self.syncs.flushed(job, self.log_end_offset)

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        leader_epoch: int,
        now_ms: int,
        verification: Verification | None = None,
    ) -> LogAppend:
        """Append a client's batch unless the log already has it, and write its offset and epoch into `batch`.

        The header and CRC must have been checked. Raises ApiError for a wrong producer epoch or sequence, an old leader
        epoch, and a transaction that is neither open nor currently verified. After an error nothing was appended.
        """
        producers = self.known_producers.states or self.known_producers.required()
        producer_id = header.producer_id
        if producer_id >= 0:
            earlier = producers.check(header, verification, now_ms)
            if earlier:
                return LogAppend(earlier.base_offset, earlier.last_offset + 1, earlier.timestamp_ms, True)
        offset = self.log_end_offset
        last_offset = offset + header.last_offset_delta
        length, timestamp_ms, append_time_ms = header.length, header.max_timestamp_ms, -1
        size_bytes = length + LENGTH_OFFSET
        if self._stamps:
            assign_log_append_time(batch, 0, header, now_ms)
            timestamp_ms = append_time_ms = now_ms
        try:
            segment = self.segments.active
            if segment.must_roll(self.config, size_bytes, last_offset, timestamp_ms, now_ms):
                segment = self.roll(now_ms)
            is_new_epoch = leader_epoch != self.epochs.latest_epoch
            if is_new_epoch:
                self.epochs.check_may_begin(leader_epoch)
            PLACE.pack_into(batch, 0, offset, length, leader_epoch)
            segment.append(batch, size_bytes, last_offset, timestamp_ms)
            if is_new_epoch:
                self.epochs.assign(leader_epoch, offset)
        except (OSError, InvalidBatch) as error:
            raise storage_error(self.log_dir, self.directory, error) from error
        self.log_end_offset = end_offset = last_offset + 1
        if producer_id >= 0:
            producers.record(header, offset, timestamp_ms)
        if end_offset >= self.syncs.due_at:
            self.await_sync(offset)
        return LogAppend(offset, end_offset, append_time_ms, False)

    def append_fetched(self, run: memoryview, headers: list[BatchHeader], high_watermark: int) -> None:
        """Append a follower's fetched batches to the active segment, unchanged. Raises OSError."""
        producers, epochs, end_offset = self.producers, self.epochs, self.log_end_offset
        self.segments.active.append_run(run, headers)
        controls = None
        self.log_end_offset = headers[-1].last_offset + 1
        latest_epoch = epochs.latest_epoch
        for header in headers:
            if header.leader_epoch != latest_epoch:
                # The epoch begins where the previous batch ends: compaction may have removed the epoch's first batches.
                epochs.assign(header.leader_epoch, end_offset)
                latest_epoch = header.leader_epoch
            end_offset = header.last_offset + 1
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    controls = controls or control_batches(run, headers)
                    record_control(producers, self.segments.active, next(controls), header)
                    # The call is made to forget transactions whose markers are below the high watermark.
                    producers.transactions.stable_until(high_watermark)
                else:
                    producers.record(header, header.base_offset, header.max_timestamp_ms)

    def commit_to(self, offset: int) -> None:
        """Set the high watermark."""
        self.high_watermark = offset

    def skip_to(self, offset: int) -> None:
        """Sync the log, then move its end up to `offset`, past offsets that compaction has removed."""
        self.flush()
        self.log_end_offset = offset
        self.syncs.synced_until(offset, offset)

    def read(self, offset: int, length_max: int, offset_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Return up to `length_max` bytes: the batch with `offset` and later ones, until a batch ends at `offset_max`.

        The last batch may be cut off, as in Kafka. A first batch that is longer than `length_max` is returned whole if
        `at_least_one_batch` is True; otherwise None is returned. Returns None also if there is no batch yet. Raises
        ApiError OFFSET_OUT_OF_RANGE.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is out of range; "
                f"the log has offsets {self.log_start_offset} to {self.log_end_offset}",
            )
        if offset >= offset_max or offset == self.log_end_offset:
            return None
        try:
            return self._reader.read(
                offset, length_max, offset_max, self.log_end_offset, at_least_one_batch=at_least_one_batch
            )
        except (OSError, InvalidBatch) as error:
            raise storage_error(self.log_dir, self.directory, error) from error

    @disk_access
    def roll(self, now_ms: int) -> Segment:
        """Begin a new segment at the log's end, unless the active segment is empty. Return the active segment."""
        active = self.segments.active
        if active.base_offset == self.log_end_offset:
            return active
        active.seal()
        self.known_producers.write_snapshot_soon(self.log_end_offset)
        new = self.new_segment(self.log_end_offset, now_ms)
        new.make()
        self.segments.add(new)
        self._mark_unflushed()
        self._reader.forget_tails()
        return new

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Return a new segment without files."""
        sizes = SegmentSizes(0, None, None, now_ms)
        return Segment(self._environment, self.directory, base_offset, self.config, sizes)

    @disk_access
    def replace_segments(self, old: list[Segment], cleaned_offsets: Collection[int], now_ms: int) -> None:
        """Replace `old` segments by compacted ones, whose synced `.cleaned` files are in the directory.

        The active segment must not be among the `old` segments. A crash leaves either the old or the new segments, and
        so does any error except LogDirFailed.
        """
        due_ms = now_ms + self.config.file_delete_delay_ms
        self.removal.swap(old, cleaned_offsets, self.config, due_ms)

    @disk_access
    def increment_log_start_offset(self, offset: int) -> None:
        """Hide the records below `offset` from readers; retention removes the segments that are entirely below it."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def discard_above(self, offset: int) -> None:
        """Delete the segments that begin above `offset`.

        The highest segment is deleted first, and the deletions are synced before anything is written, so that a power
        failure never leaves a gap in the log.
        """
        above = [segment for segment in self.segments if segment.base_offset > offset]
        self.removal.discard(above[::-1], due_ms=0)
        if above:
            self.files.sync_dir(self.directory)

    def recovered(self, recovery_point: int, end_offset: int, epochs: list[FoundEpoch]) -> None:
        """Set the log end offset and the leader epochs that recovery has found, and load the producers."""
        self.syncs.recovered(min(recovery_point, self.log_end_offset), end_offset)
        self.log_end_offset = end_offset
        self.epochs.load(self.log_start_offset, recovery_point, self.segments)
        self.epochs.recovered(epochs)
        # Loading a snapshot above the recovery point would skip batches with transaction markers that must be read.
        self.known_producers.snapshots.remove_after(recovery_point)
        self.known_producers.load(self.log_start_offset, self.log_end_offset)
        self.ends_at(self.log_end_offset)
        self._mark_unflushed()

    def ends_at(self, offset: int) -> None:
        """Set the log end offset after a truncation, and drop caches.

        Offsets of the log that are higher, such as the recovery point, are lowered, except the high watermark. If a
        checkpoint file may have a higher offset, the log refuses appends until the checkpoints are rewritten.
        """
        lowered = offset < self.log_start_offset
        lowered |= self.syncs.end_at(offset, self.log_end_offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self._reader.forget_tails()
        lowered |= self.compaction.lower_to(offset)
        if lowered:
            self.known_producers.hold_back(until_checkpointed=True)
        if self.known_producers.are_held_back:
            self._environment.truncated(self)

    def await_checkpoint(self) -> None:
        """Refuse appends until the checkpoints are rewritten.

        Until then, the checkpoints may still list an earlier log with the same name, or may not list yet that this log
        acknowledges only synced records.
        """
        self.known_producers.hold_back(until_checkpointed=True)
        self._environment.truncated(self)

    def take_over(self, log: "Log", producers: ProducerStates) -> None:
        """Use `producers` and the compaction bounds of `log`, because this log was copied from `log`."""
        self.known_producers.take_over(producers)
        self.compaction = log.compaction

    def belongs_to(self, topic_id: UUID) -> None:
        """Set the topic id that `partition.metadata` has or will have."""
        self.topic_id = topic_id

    @disk_access
    def producer_replay(self) -> ProducerReplay:
        """Return an object that rebuilds the producers of a truncated log from its batches.

        A thread has to call `run` of the object before the log accepts appends again (`truncated_logs`).
        """
        return self.known_producers.replay(self.log_dir, self.directory, self.log_start_offset, self.log_end_offset)

    @disk_access
    def first_left_from(self, offset: int) -> int:
        """Return `offset`, or the next offset that compaction has not removed."""
        if not self.log_start_offset <= offset < self.compaction.until:
            return offset
        located = self.segments.locate(offset)
        return offset if located is None else max(offset, located[1].header.base_offset)

    @disk_access
    def move_to(self, directory: str) -> None:
        """Rename the directory, for example to delete the log."""
        self.segments.close_files()
        self.files.rename(self.directory, directory)
        self.directory = directory
        for part in (self.known_producers.snapshots, self.epochs, self.syncs, *self.segments):
            part.moved_to(directory)


@disk_access
def aborted_among(log: Log, offset: int, records: FileSlice) -> list[tuple[int, int]]:
    """Return the producer id and first offset of each aborted transaction with records in `records`.

    `records` were read from `offset` on. The result is sorted by first offset, and may include transactions that began
    after `records`. Raises StorageError.
    """
    end_offset = _end_offset(log, offset, records)
    found: list[tuple[int, int]] = []
    for segment in log.segments.starting_at(offset):
        if segment.transactions:
            overlapping, is_complete = segment.transactions.overlapping(offset, end_offset)
            found += [(each.producer_id, each.first_offset) for each in overlapping]
            if is_complete:
                break
    return sorted(found, key=_first_offset)


def _end_offset(log: Log, offset: int, records: FileSlice) -> int:
    """Return an upper bound for the end offset of the fetched records, as low as the index allows."""
    for segment in log.segments.starting_at(offset):
        if segment.has_open(records.file):
            indexed = segment.indexes.offset_behind(records.position + records.length)
            return indexed or log.segments.end_offset(segment, log.log_end_offset)
    return log.log_end_offset


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]
