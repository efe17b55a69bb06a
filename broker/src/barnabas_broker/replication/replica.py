"""A replica of a partition on this broker, in the role of a follower.

A follower appends fetched batches, and truncates its log where the log diverges from the leader's (KIP-101, KIP-279,
KIP-595). The subclass `partition.Partition` adds the role of the leader.
"""

from uuid import UUID

from barnabas_broker.metadata.model import NO_LEADER, PartitionState
from barnabas_broker.replication.partition_environment import FetchPosition
from barnabas_broker.storage.logs.follower_append import append_as_follower
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at, truncate_to
from barnabas_core.topic_partition import TopicPartition


class Replica:
    """A log with its high watermark, and with the partition's state in the metadata."""

    __slots__ = ("_state", "high_watermark", "log", "replication_bytes_in", "topic_id", "topic_partition")

    def __init__(self, topic_partition: TopicPartition, topic_id: UUID, log: Log, high_watermark: int) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.replication_bytes_in = 0
        self._state = PartitionState(replicas=(), leader=NO_LEADER, leader_epoch=-1, isr=(), partition_epoch=-1)

    @property
    def state(self) -> PartitionState:
        """The partition's state in the metadata."""
        return self._state

    @property
    def leader_id(self) -> int:
        """The broker id of the leader, NO_LEADER if the partition has no leader."""
        return self._state.leader

    @property
    def leader_epoch(self) -> int:
        """The leader epoch, which each election increases."""
        return self._state.leader_epoch

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log that can be read."""
        return self.log.log_start_offset

    def move_to(self, log: Log) -> None:
        """Replace the log by a log with the same records in another log dir."""
        log.configure(self.log.config)
        self.log = log

    def fetch_position(self) -> FetchPosition:
        """Return the position of the follower's next fetch."""
        log = self.log
        return FetchPosition(log.log_end_offset, log.epochs.latest_epoch, self.leader_epoch, log.log_start_offset)

    def append_as_follower(
        self, records: memoryview, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> None:
        """Append batches from the leader, and apply the leader's high watermark and log start offset.

        Raises ApiError for invalid batches, and StorageError.
        """
        if records:
            self.replication_bytes_in += append_as_follower(
                self.log, records, self.leader_epoch, leader_high_watermark, now_ms
            )
        self._follow_high_watermark(leader_high_watermark)
        start_offset = min(leader_log_start_offset, self.high_watermark)
        if start_offset > self.log.log_start_offset:
            self.log.increment_log_start_offset(start_offset)

    def _follow_high_watermark(self, leader_high_watermark: int) -> None:
        """Advance the high watermark to the leader's, but not beyond the log end offset."""
        self.high_watermark = max(self.high_watermark, min(leader_high_watermark, self.log.log_end_offset))

    def diverged(self, epoch: int, end_offset: int) -> None:
        """Truncate the log where it diverges from the leader's log, in which `epoch` ends at `end_offset`.

        A log without this epoch keeps its records of lower epochs, up to `end_offset` (KIP-279).
        """
        own_epoch, own_end_offset = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        if end_offset < 0:
            kept = self.high_watermark  # The leader's log has no leader epochs.
        elif own_epoch < 0:
            kept = end_offset
        else:
            kept = min(end_offset, own_end_offset)
        self._truncate_to(kept)

    def out_of_range(self, leader_log_start_offset: int, leader_log_end_offset: int, now_ms: int) -> None:
        """Truncate a log that ends after the leader's log; empty a log that ends before the leader's log start."""
        if self.log.log_end_offset > leader_log_end_offset:
            self._truncate_to(leader_log_end_offset)
        elif self.log.log_end_offset < leader_log_start_offset:
            truncate_fully_and_start_at(self.log, leader_log_start_offset, now_ms)
            self.high_watermark = leader_log_start_offset

    def _truncate_to(self, offset: int) -> None:
        try:
            truncate_to(self.log, offset)
        finally:  # A truncation that fails may have removed records.
            self._uncommit_what_is_cut()

    def _uncommit_what_is_cut(self) -> None:
        """Lower the high watermark to the log end offset, also in the checkpoint."""
        if self.log.log_end_offset < self.high_watermark:
            self.high_watermark = self.log.log_end_offset
            self.log.await_checkpoint()
