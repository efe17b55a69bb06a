"""One partition of this broker: its log with the state of leadership that the metadata gives it."""

from typing import Final
from uuid import UUID

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.purgatory import WaitList
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log import Log, LogAppend
from barnabas_broker.wire.parts import FileSlice
from barnabas_broker.wire.record_batch import BatchHeader
from barnabas_core.config.log_config import LONG_MAX, Compression, LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

ANY_ACKS: Final = frozenset({-1, 0, 1})
LEADER_ACKS: Final = frozenset({0, 1})
NO_ACKS: Final[frozenset[int]] = frozenset()


class Partition:
    """The leader's view. `failure` says why the partition is offline, if it is."""

    __slots__ = (
        "_segment_bytes",
        "_timestamp_after_max_ms",
        "_timestamp_before_max_ms",
        "accepted_acks",
        "batch_bytes_max",
        "bytes_in",
        "bytes_out",
        "failure",
        "high_watermark",
        "inspects_records",
        "is_leader",
        "isr_size",
        "leader_epoch",
        "log",
        "messages_in",
        "replica_count",
        "topic_id",
        "topic_partition",
        "waiters",
    )

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, log: Log, waiters: WaitList) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.waiters = waiters
        self.failure: StorageError | None = None
        self.is_leader = False
        self.leader_epoch = -1
        self.isr_size = 0
        self.replica_count = 0
        self.high_watermark = log.log_end_offset
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.accepted_acks = NO_ACKS
        """Which `acks` a Produce may ask for now; `check_writable` says why not the others."""
        self.configure(log.config)

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed consumers stop: the high watermark, while no transaction is open."""
        return self.high_watermark

    @property
    def isr_size_min(self) -> int:
        """How many replicas acks=all wants in sync: `min.insync.replicas`, or all where there are fewer (KIP-966)."""
        return min(self.log.config.min_insync_replicas, self.replica_count)

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.log.log_start_offset

    def configure(self, config: LogConfig) -> None:
        """Take over the topic's settings."""
        self.log.config = config
        self.inspects_records = config.compacted or config.compression is not Compression.PRODUCER
        self.batch_bytes_max = config.message_bytes_max
        self._segment_bytes = config.segment_bytes
        stamps = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._timestamp_after_max_ms = LONG_MAX if stamps else config.timestamp_after_max_ms
        self._timestamp_before_max_ms = LONG_MAX if stamps else config.timestamp_before_max_ms
        self._settle()

    def _settle(self) -> None:
        """What follows from leadership, ISR, settings and the disk."""
        enough = self.isr_size >= self.isr_size_min
        is_open = self.is_leader and self.failure is None
        self.accepted_acks = (ANY_ACKS if enough else LEADER_ACKS) if is_open else NO_ACKS

    def go_offline(self, failure: StorageError) -> None:
        """Answer everybody with an error until the log is replaced."""
        self.failure = failure
        self._settle()
        self.waiters.mark()

    def replace_log(self, log: Log) -> None:
        """The log was loaded anew from a disk that works again."""
        self.log = log
        self.failure = None
        self.high_watermark = log.log_end_offset
        self._settle()
        self.waiters.mark()

    def lead(self, state: PartitionState, broker_id: int) -> None:
        """Take over leader, epoch and in-sync replicas from the metadata."""
        self.is_leader = state.leader == broker_id
        self.leader_epoch = state.leader_epoch
        self.isr_size = len(state.isr)
        self.replica_count = len(state.replicas)
        self._settle()

    def check_readable(self, current_leader_epoch: int) -> None:
        """ApiError unless this replica leads and the client knows its epoch (-1: the client does not say; KIP-320)."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            behind = current_leader_epoch < self.leader_epoch
            code = ErrorCode.FENCED_LEADER_EPOCH if behind else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"leader epoch {current_leader_epoch}; {self.leader_epoch} is current")

    def check_writable(self, *, all_replicas: bool) -> None:
        """ApiError unless this replica leads and, for acks=all, enough replicas are in sync."""
        self.check_readable(-1)
        if all_replicas and self.isr_size < self.isr_size_min:
            allowed = f"min.insync.replicas={self.log.config.min_insync_replicas}"
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.isr_size} replicas in sync; {allowed}")

    def append_as_leader(self, batch: memoryview, header: BatchHeader, now_ms: int) -> LogAppend:
        """Append one checked batch and wake who waits. ApiError for its sequence, StorageError for the disk."""
        too_late = header.max_timestamp_ms > now_ms + self._timestamp_after_max_ms
        if too_late or 0 <= header.base_timestamp_ms < now_ms - self._timestamp_before_max_ms:
            raise _out_of_bounds(header, now_ms, self.log.config)
        if len(batch) > self._segment_bytes:
            message = f"a batch of {len(batch)} bytes; segment.bytes={self._segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        appended = self.log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.duplicate:
            self.messages_in += header.record_count
            self.bytes_in += len(batch)
            self._advance_high_watermark()
        return appended

    def _advance_high_watermark(self) -> None:
        """The leader is the only replica in sync, so what it has is committed."""
        self.high_watermark = self.log.log_end_offset
        if self.waiters:
            self.waiters.mark()

    def read(self, offset: int, length_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Committed batches from `offset` on; None when there are none. ApiError OFFSET_OUT_OF_RANGE."""
        records = self.log.read(offset, length_max, self.high_watermark, at_least_one_batch=at_least_one_batch)
        if records is not None:
            self.bytes_out += records.length
        return records


def _out_of_bounds(header: BatchHeader, now_ms: int, config: LogConfig) -> ApiError:
    after, before = config.timestamp_after_max_ms, config.timestamp_before_max_ms
    return ApiError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamps {header.base_timestamp_ms} to {header.max_timestamp_ms} with the broker's clock at {now_ms}; "
        f"message.timestamp.before.max.ms={before} and message.timestamp.after.max.ms={after}",
    )
