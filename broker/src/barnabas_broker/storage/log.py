"""The log of one partition: an ordered run of segments in one directory.

Owns the offsets and everything that changes the log. `log_files` has its files and syncs them. `follower_append`,
`truncation` and `timestamp_lookup` are the larger operations on a log; `log_loader` makes one from what is on disk. All
methods raise StorageError (`disk_access`); ApiError where the caller's request is at fault.
"""

from collections.abc import Collection

from barnabas_broker.storage.errors import InvalidBatch, disk_access, storage_error
from barnabas_broker.storage.leader_epochs import FoundEpoch
from barnabas_broker.storage.log_environment import LogEnvironment
from barnabas_broker.storage.log_files import LogFiles
from barnabas_broker.storage.log_offsets import LogAppend, LogOffsets
from barnabas_broker.storage.log_producers import ProducerLookup
from barnabas_broker.storage.log_reader import LogReader
from barnabas_broker.storage.producer_snapshots import ProducerSnapshots
from barnabas_broker.storage.retention import RetentionBounds, expired_segments
from barnabas_broker.storage.segment import Segment
from barnabas_broker.storage.segment_listing import listed_segments
from barnabas_broker.storage.swap import finish_swap, promote_cleaned
from barnabas_broker.wire.parts import FileSlice
from barnabas_broker.wire.record_batch import LENGTH_OFFSET, BatchHeader, assign_log_append_time, assign_offset
from barnabas_core.config.log_config import LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


class Log(LogFiles):
    """Offsets are exclusive ends where their name says `end`."""

    __slots__ = ("_latest_epoch", "_reader", "_stamps", "clean_until", "superseded_until")

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
        self.config = config
        self._latest_epoch = -1
        self._reader = LogReader(self.segments)
        self.clean_until: int | None = None
        """Up to here the log is compacted; None where it never was. A truncation lowers it."""
        self.superseded_until = 0
        """Compaction, here or where this was fetched from, may have removed records for newer ones below this."""

    def _configured(self) -> None:
        super()._configured()
        self._stamps = self._config.timestamp_type is TimestampType.LOG_APPEND_TIME

    def append(self, batch: memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> LogAppend:
        """Write a client's batch, which is all of `batch` and gets its offset and epoch in place.

        Its header and CRC have been checked. ApiError for a producer's epoch or sequence; on any error nothing changed.
        """
        producers = self.known_producers.states or self._load_producers()
        producer_id = header.producer_id
        if producer_id >= 0:
            earlier = producers.check(header)
            if earlier:
                return LogAppend(earlier.base_offset, earlier.timestamp_ms, True)
        offset = self.log_end_offset
        timestamp_ms, append_time_ms = header.max_timestamp_ms, -1
        if self._stamps:
            assign_log_append_time(batch, 0, header, now_ms)
            timestamp_ms = append_time_ms = now_ms
        self._write(batch, header, leader_epoch, timestamp_ms, now_ms)
        if producer_id >= 0:
            producers.record(header, offset, timestamp_ms)
        if self.log_end_offset - self.recovery_point >= self._config.flush_messages:
            self.await_sync(offset)
        return LogAppend(offset, append_time_ms, False)

    def _write(self, batch: memoryview, header: BatchHeader, leader_epoch: int, timestamp_ms: int, now_ms: int) -> None:
        offset = self.log_end_offset
        last_offset = offset + header.last_offset_delta
        size_bytes = header.length + LENGTH_OFFSET
        try:
            segment = self.segments.active
            if segment.must_roll(self._config, size_bytes, last_offset, timestamp_ms, now_ms):
                segment = self.roll(now_ms)
            if leader_epoch != self._latest_epoch:
                self.epochs.check_may_begin(leader_epoch)
            assign_offset(batch, 0, offset, leader_epoch)
            segment.append(batch, size_bytes, last_offset, timestamp_ms)
            if leader_epoch != self._latest_epoch:
                self.epochs.assign(leader_epoch, offset)
                self._latest_epoch = leader_epoch
        except (OSError, InvalidBatch) as error:
            raise storage_error(self.log_dir, self.directory, error) from error
        self.log_end_offset = last_offset + 1

    def read(self, offset: int, length_max: int, offset_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Bytes from the batch that holds `offset` on, all below `offset_max` (a batch's end), at most `length_max`.

        The last batch may be cut, as Kafka does; the first is whole, or there is None: when nothing is there yet, and
        when the first batch is longer than `length_max` and not `at_least_one_batch`. ApiError OFFSET_OUT_OF_RANGE.
        """
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition}: it has {self.log_start_offset} to {self.log_end_offset}",
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
        """Begin a new segment at the log's end, unless the active one is empty. The old one is ready to be synced."""
        active = self.segments.active
        if active.base_offset == self.log_end_offset:
            return active
        active.seal()
        self._load_producers()
        self.known_producers.write_snapshot(self.log_end_offset)
        new = Segment.create(self._environment, self.directory, self.log_end_offset, self._config, now_ms)
        self.segments.add(new)
        self._mark_unflushed()
        self._reader.forget_tails()
        return new

    @disk_access
    def enforce_retention(self, now_ms: int, high_watermark: int) -> int:
        """Delete what retention by time, size and log start offset lets go of; how many segments that were."""
        if not self.takes_appends:  # An active segment cannot be rolled.
            return 0
        bounds = RetentionBounds(self.log_start_offset, self.log_end_offset, high_watermark)
        expired = expired_segments(self.segments, self._config, bounds, now_ms)
        if expired:
            self.delete_segments(expired, now_ms)
        return len(expired)

    @disk_access
    def delete_segments(self, segments: list[Segment], now_ms: int) -> None:
        """Drop the oldest segments; their files go after `file.delete.delay.ms`.

        If the active one is among them it goes last, for the roll before that needs space, which a full disk lacks.
        """
        active, due_ms = self.segments.active, now_ms + self._config.file_delete_delay_ms
        self._discard([segment for segment in segments if segment is not active], due_ms)
        self.increment_log_start_offset(self.segments.first.base_offset)
        if active in segments:
            self.roll(now_ms)
            self._discard([active], due_ms)
            self.increment_log_start_offset(self.segments.first.base_offset)

    def _discard(self, segments: list[Segment], due_ms: int) -> None:
        for segment in segments:
            for path in segment.mark_deleted():
                self._environment.trash.add(path, due_ms)
        self.segments.replace(segments, [])
        self.known_producers.snapshots.keep_only(segment.base_offset for segment in self.segments)

    @disk_access
    def replace_segments(self, old: list[Segment], cleaned_offsets: Collection[int], now_ms: int) -> None:
        """Put compacted segments, whose synced `.cleaned` files lie in the directory, in the place of `old` ones.

        None of them is the active one. A crash at any moment leaves either the old or the new ones.
        """
        promote_cleaned(self.files, self.directory, cleaned_offsets)
        deleted = [path for segment in old for path in segment.mark_deleted()]
        finish_swap(self.files, self.directory, cleaned_offsets)
        for path in deleted:
            self._environment.trash.add(path, now_ms + self._config.file_delete_delay_ms)
        listed, _ = listed_segments(self._environment, self.directory, self._config, self.files.scan(self.directory))
        self.segments.replace(old, [segment for segment in listed if segment.base_offset in cleaned_offsets])
        self.known_producers.snapshots.keep_only(segment.base_offset for segment in self.segments)

    @disk_access
    def increment_log_start_offset(self, offset: int) -> None:
        """Records below `offset` are gone for readers; retention removes the segments that lie wholly below it."""
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)

    def discard_above(self, offset: int) -> None:
        """Drop the segments that begin past `offset`.

        The highest first, and for good before anything is written: a power cut never leaves a hole in the log.
        """
        above = [segment for segment in self.segments if segment.base_offset > offset]
        self._discard(above[::-1], due_ms=0)
        if above:
            self.files.sync_dir(self.directory)

    @disk_access
    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop everything, the end first and for good, as in `discard_above`; the log begins and ends at `offset`."""
        self.truncations += 1
        old = list(self.segments)
        for segment in old[::-1]:
            for path in segment.mark_deleted():
                self._environment.trash.add(path, now_ms)
        if len(old) > 1:
            self.files.sync_dir(self.directory)
        self.segments.replace(old, [Segment.create(self._environment, self.directory, offset, self._config, now_ms)])
        self.known_producers.clear()
        self.epochs.clear()
        self.ends_at(offset)
        self.log_start_offset = offset

    def load_epochs(self) -> None:
        """In the thread that loads it: a start tells of the latest epoch of all logs, on the loop."""
        self._latest_epoch = self.epochs.latest_epoch

    def recovered(self, recovery_point: int, epochs: list[FoundEpoch]) -> None:
        """Recovery has found the log's end, and the epochs from the recovery point on: bring the rest there."""
        self._load_epochs(recovery_point).recovered(epochs)
        self._load_producers()
        self.ends_at(self.log_end_offset)
        self._mark_unflushed()

    def ends_at(self, offset: int) -> None:
        """What was behind it is gone: that holds for all that is known of it, too."""
        lowered = offset < max(self.recovery_point, self.log_start_offset)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        self.epochs.truncate_from_end(offset)
        self._latest_epoch = self.epochs.latest_epoch
        self._reader.forget_tails()
        self.recovery_point = min(offset, self.recovery_point)
        self._synced()
        self.superseded_until = min(offset, self.superseded_until)
        if self.clean_until is not None and offset < self.clean_until:
            self.clean_until, lowered = offset, True
        if self.known_producers.hold_back(until_checkpointed=lowered):
            self._environment.truncated(self)

    def await_checkpoint(self) -> None:
        """A new log, of whose name the checkpoints have an earlier one: it waits as one that was truncated."""
        self.known_producers.clear()
        self.known_producers.hold_back(until_checkpointed=True)
        self._environment.truncated(self)

    @disk_access
    def producer_lookup(self) -> ProducerLookup | None:
        """What a thread has to find in a truncated log, if anything (`truncated_logs`)."""
        return self.known_producers.lookup(self.log_dir, self.directory, self.log_start_offset, self.log_end_offset)

    def epoch_of(self, offset: int) -> int:
        """The leader epoch of the batch that holds `offset`; -1 when it is unknown."""
        return self.epochs.epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch` and where it ends, for followers; (-1, -1) when that is unknown."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that have been silent for `producer.id.expiration.ms`."""
        if self.known_producers.states is not None:
            self.known_producers.states.expire(now_ms, self._environment.producer_id_expiration_ms)
