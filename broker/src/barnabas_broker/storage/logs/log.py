"""The log of one partition: an ordered run of segments in one directory.

`Log` has the offsets and everything that changes the log. Its base class in `log_files` has the files and syncs them.
`follower_append`, `truncation` and `timestamp_lookup` are larger operations on a log; `log_loader` loads a log from
disk. Methods raise StorageError if the disk fails (`disk_access`), unless they are documented to raise OSError. They
raise ApiError if the request is wrong.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from uuid import UUID

from barnabas_broker.storage.errors import InvalidBatch, disk_access, storage_error
from barnabas_broker.storage.logs.compaction_bounds import CompactionBounds
from barnabas_broker.storage.logs.leader_epochs import FoundEpoch
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_broker.storage.logs.log_files import LogFiles
from barnabas_broker.storage.logs.log_offsets import LogAppend, LogOffsets
from barnabas_broker.storage.logs.log_reader import LogReader
from barnabas_broker.storage.logs.retention import RetentionBounds, expired_segments
from barnabas_broker.storage.logs.segment_removal import SegmentRemoval
from barnabas_broker.storage.producer_state.control_batches import control_batches, record_control
from barnabas_broker.storage.producer_state.log_producers import ProducerReplay
from barnabas_broker.storage.producer_state.producer_snapshots import ProducerSnapshots
from barnabas_broker.storage.producer_state.producers import ProducerStates
from barnabas_broker.storage.segments.segment import Segment, SegmentSizes
from barnabas_broker.wire.parts import FileSlice
from barnabas_broker.wire.record_batch import (
    CONTROL_BIT,
    LENGTH_OFFSET,
    PLACE,
    BatchHeader,
    assign_log_append_time,
)
from barnabas_core.config.log_config import LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


class Log(LogFiles):
    """The log of a partition. Offsets with `end` in their names are exclusive."""

    __slots__ = ("_latest_epoch", "_reader", "_removal", "_stamps", "compaction")

    def __init__(
        self,
        environment: LogEnvironment,
        log_dir: str,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        segments: list[Segment],
        snapshots: ProducerSnapshots,
        offsets: LogOffsets,
    ) -> None:
        super().__init__(environment, log_dir, directory, topic_partition, segments, snapshots, offsets)
        self.configure(config)
        self._latest_epoch = -1
        self._reader = LogReader(self.segments)
        self._removal = SegmentRemoval(environment, self.segments, snapshots)
        self.compaction = CompactionBounds()

    def configure(self, config: LogConfig) -> None:
        """Apply new settings of the topic."""
        super().configure(config)
        self._stamps = self._config.timestamp_type is TimestampType.LOG_APPEND_TIME

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> LogAppend:
        """Append a client's batch, and write its offset and epoch into `batch`.

        The header and CRC must have been checked. Raises ApiError for a wrong producer epoch or sequence. After an
        error the log is unchanged.
        """
        producers = self.known_producers.states or self._load_producers()
        producer_id = header.producer_id
        if producer_id >= 0:
            earlier = producers.check(header)
            if earlier:
                return LogAppend(earlier.base_offset, earlier.timestamp_ms, True)
        offset = self.log_end_offset
        last_offset = offset + header.last_offset_delta
        length, timestamp_ms, append_time_ms = header.length, header.max_timestamp_ms, -1
        size_bytes = length + LENGTH_OFFSET
        if self._stamps:
            assign_log_append_time(batch, 0, header, now_ms)
            timestamp_ms = append_time_ms = now_ms
        try:
            segment = self.segments.active
            if segment.must_roll(self._config, size_bytes, last_offset, timestamp_ms, now_ms):
                segment = self.roll(now_ms)
            if leader_epoch != self._latest_epoch:
                self.epochs.check_may_begin(leader_epoch)
            PLACE.pack_into(batch, 0, offset, length, leader_epoch)
            segment.append(batch, size_bytes, last_offset, timestamp_ms)
            if leader_epoch != self._latest_epoch:
                self.epochs.assign(leader_epoch, offset)
                self._latest_epoch = leader_epoch
        except (OSError, InvalidBatch) as error:
            raise storage_error(self.log_dir, self.directory, error) from error
        self.log_end_offset = end_offset = last_offset + 1
        if producer_id >= 0:
            producers.record(header, offset, timestamp_ms)
        if end_offset >= self.syncs.due_at:
            self.await_sync(offset)
        return LogAppend(offset, append_time_ms, False)

    def append_fetched(self, run: memoryview, headers: list[BatchHeader], high_watermark: int) -> None:
        """Append a follower's fetched batches to the active segment, unchanged. Raises OSError."""
        producers, epochs, end_offset = self.producers, self.epochs, self.log_end_offset
        self.segments.active.append_run(run, headers)
        controls = None
        self.log_end_offset = headers[-1].last_offset + 1
        latest_epoch = epochs.latest_epoch
        for header in headers:
            if header.leader_epoch != latest_epoch:
                epochs.assign(header.leader_epoch, end_offset)  # Compaction may have removed the epoch's first batches.
                latest_epoch = header.leader_epoch
            end_offset = header.last_offset + 1
            if header.producer_id >= 0:
                if header.attributes & CONTROL_BIT:
                    controls = controls or control_batches(run, headers)
                    record_control(producers, self.segments.active, next(controls), header)
                    producers.transactions.stable_until(high_watermark)  # This call also forgets ended transactions.
                else:
                    producers.record(header, header.base_offset, header.max_timestamp_ms)

    def skip_to(self, offset: int) -> None:
        """Sync the log, then move its end up to `offset`, past offsets that compaction has removed."""
        self.flush()
        self.log_end_offset = offset
        self.syncs.synced_until(offset, offset)

    def read(self, offset: int, length_max: int, offset_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Return up to `length_max` bytes of batches, from the batch with `offset` up to `offset_max` (a batch's end).

        The last batch may be incomplete, as in Kafka; the first is complete. Returns None if there is no batch yet, or
        if the first batch is longer than `length_max` and not `at_least_one_batch`. Raises ApiError
        OFFSET_OUT_OF_RANGE.
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
        self._load_producers()
        self.known_producers.write_snapshot(self.log_end_offset)
        new = self._new_segment(self.log_end_offset, now_ms)
        new.make()
        self.segments.add(new)
        self._mark_unflushed()
        self._reader.forget_tails()
        return new

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        """Return a new segment without files."""
        sizes = SegmentSizes(0, None, None, now_ms)
        return Segment(self._environment, self.directory, base_offset, self._config, sizes)

    @disk_access
    def enforce_retention(self, now_ms: int, high_watermark: int) -> int:
        """Delete the segments that exceed retention by time, size or log start offset; return their number."""
        if not self.takes_appends:  # While the log takes no appends, the active segment cannot be rolled.
            return 0
        bounds = RetentionBounds(self.log_start_offset, self.log_end_offset, high_watermark)
        expired = expired_segments(self.segments, self._config, bounds, now_ms)
        if expired:
            self.delete_segments(expired, now_ms)
        return len(expired)

    @disk_access
    def delete_segments(self, segments: list[Segment], now_ms: int) -> None:
        """Delete `segments`, the oldest ones of the log; their files are removed after `file.delete.delay.ms`.

        The active segment is deleted last, because it must be rolled first, which may fail on a full disk.
        """
        active, due_ms = self.segments.active, now_ms + self._config.file_delete_delay_ms
        self._discard_oldest([segment for segment in segments if segment is not active], due_ms)
        if active in segments:
            self.roll(now_ms)
            self._discard_oldest([active], due_ms)

    def _discard_oldest(self, segments: list[Segment], due_ms: int) -> None:
        """Delete segments, and raise the log start offset to the first remaining segment, also after an error."""
        try:
            self._removal.discard(segments, due_ms)
        finally:
            self.increment_log_start_offset(self.segments.first.base_offset)

    @disk_access
    def replace_segments(self, old: list[Segment], cleaned_offsets: Collection[int], now_ms: int) -> None:
        """Replace `old` segments by compacted ones, whose synced `.cleaned` files are in the directory.

        The active segment must not be among the `old` segments. A crash leaves either the old or the new segments, and
        so does any error except LogDirFailed.
        """
        due_ms = now_ms + self._config.file_delete_delay_ms
        self._removal.swap(old, cleaned_offsets, self._config, due_ms)

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
        self._removal.discard(above[::-1], due_ms=0)
        if above:
            self.files.sync_dir(self.directory)

    def cut(self, offset: int) -> None:
        """Truncate the log to `offset`, which must not be below the first segment. Raises OSError.

        If some segments cannot be deleted, the log ends with the remaining segments.
        """
        self.truncations += 1
        self.known_producers.snapshots.remove_after(offset)
        with self._dropping_the_end():
            self.discard_above(offset)
        self.segments.active.truncate_to(offset)
        self._cut_at(offset)

    @contextmanager
    def _dropping_the_end(self) -> Iterator[None]:
        """Delete segments in the `with` block; after an error, the log ends with the remaining segments."""
        before = [segment.base_offset for segment in self.segments]
        try:
            yield
        except OSError:
            gone = [base_offset for base_offset in before if base_offset > self.segments.active.base_offset]
            if gone:
                self._cut_at(min(gone))
            raise

    def _cut_at(self, offset: int) -> None:
        """Truncate the producers and all offsets to `offset`, where the files end."""
        self.known_producers.truncate(offset)
        self._ends_at(offset)

    @disk_access
    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Delete all segments, the highest first, so that the log begins and ends at `offset`.

        If `offset` is at or above the end of the first segment, the new segment is created before the first segment is
        deleted; after a power failure between these steps, recovery removes the new segment. Otherwise the new segment
        is created after the deletion, because it would hide or overlap old records.
        """
        self.truncations += 1
        first, new = self.segments.first, self._new_segment(offset, now_ms)
        is_above = first.base_offset < offset >= self.segments.end_offset(first, self.log_end_offset)
        self.known_producers.snapshots.clear()
        with self._dropping_the_end():
            self.discard_above(first.base_offset)
            if is_above:
                new.make(then=lambda: self._removal.retire(first, now_ms))
            else:
                self._removal.retire(first, now_ms)
        self.segments.replace([first], [new])
        try:
            self.known_producers.clear()
            self.epochs.clear()
            if not is_above:
                new.make()
        finally:
            self._ends_at(offset)
            self.log_start_offset = offset

    def load_epochs(self) -> None:
        """Load the leader epochs while a thread loads the log, so that the event loop need not read the file later."""
        self._latest_epoch = self.epochs.latest_epoch

    def found(self, topic_id: UUID | None, *, after_crash: bool) -> None:
        """Set the topic id, and whether the log is loaded after a crash, before its segments are read."""
        self.topic_id, self.was_recovered = topic_id, after_crash

    def recovered(self, recovery_point: int, end_offset: int, epochs: list[FoundEpoch]) -> None:
        """Set the log's end that recovery has found, and the epochs from the recovery point on."""
        self.syncs.recovered(min(recovery_point, self.log_end_offset), end_offset)
        self.log_end_offset, self.was_recovered = end_offset, True
        self._load_epochs(recovery_point).recovered(epochs)
        # Batches above the recovery point are replayed, so that their transaction markers are read, too.
        self.known_producers.snapshots.remove_after(recovery_point)
        self._load_producers()
        self._ends_at(self.log_end_offset)
        self._mark_unflushed()

    def _ends_at(self, offset: int) -> None:
        """Lower all offsets and caches of the log to its new end."""
        lowered = offset < self.log_start_offset
        lowered |= self.syncs.end_at(offset, self.log_end_offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self._latest_epoch = self.epochs.latest_epoch
        self._reader.forget_tails()
        lowered |= self.compaction.lower_to(offset)
        if lowered:
            self.known_producers.hold_back(until_checkpointed=True)
        if not self.takes_appends:
            self._environment.truncated(self)

    def await_checkpoint(self) -> None:
        """Take no appends until the checkpoints are rewritten, because they may list an earlier log of that name."""
        self.known_producers.hold_back(until_checkpointed=True)
        self._environment.truncated(self)

    def load_clean_offset(self, checkpointed: int) -> bool:
        """Set the checkpointed clean offset. Return True if it is above the log's end, so that appends have to wait."""
        self.compaction.ended(min(checkpointed, self.log_end_offset))
        if checkpointed > self.log_end_offset:
            self.known_producers.hold_back(until_checkpointed=True)
        return checkpointed > self.log_end_offset

    def take_over(self, log: "Log", producers: ProducerStates) -> None:
        """Use `producers`, and the compaction bounds of `log`, from which this log was copied."""
        self.known_producers.states = producers
        self.compaction = log.compaction

    def belongs_to(self, topic_id: UUID) -> None:
        """Set the topic id that `partition.metadata` has or will have."""
        self.topic_id = topic_id

    @disk_access
    def producer_replay(self) -> ProducerReplay:
        """Return the replay that a thread has to run before the truncated log takes appends (`truncated_logs`)."""
        return self.known_producers.replay(self.log_dir, self.directory, self.log_start_offset, self.log_end_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known epoch up to `epoch` and its end offset; (-1, -1) if no known epoch is as high."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    @disk_access
    def first_left_from(self, offset: int) -> int:
        """Return `offset`, or the next offset that compaction has not removed."""
        if not self.log_start_offset <= offset < self.compaction.until:
            return offset
        located = self.segments.locate(offset)
        return offset if located is None else max(offset, located[1].header.base_offset)

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that have not written for `producer.id.expiration.ms`."""
        if self.known_producers.states is not None:
            self.known_producers.states.expire(now_ms, self._environment.producer_id_expiration_ms)
