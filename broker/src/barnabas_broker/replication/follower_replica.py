"""The follower's side of a replica.

A follower appends fetched batches, and truncates its log where the log diverges from the leader's (KIP-101, KIP-279,
KIP-595).
"""

from barnabas_broker.replication.partition_environment import FetchPosition
from barnabas_broker.storage.logs.follower_append import append_as_follower
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import truncate_fully_and_start_at, truncate_to


class FollowerReplica:
    """The log of a replica that follows, and the number of bytes that the replica has fetched from leaders."""

    __slots__ = ("log", "replication_bytes_in")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.replication_bytes_in = 0

    def use(self, log: Log) -> None:
        """Use `log` from now on in place of the replica's previous log."""
        self.log = log

    def fetch_position(self, leader_epoch: int) -> FetchPosition:
        """Return the position of the next fetch."""
        log = self.log
        return FetchPosition(log.log_end_offset, log.epochs.latest_epoch, leader_epoch, log.log_start_offset)

    def append(
        self, records: memoryview, leader_epoch: int, leader_high_watermark: int, leader_start_offset: int, now_ms: int
    ) -> None:
        """Append batches from the leader, and apply the leader's high watermark and log start offset.

        Raises ApiError if the log refuses the batches, and StorageError if the disk fails or the log is corrupt.
        """
        log = self.log
        if records:
            self.replication_bytes_in += append_as_follower(log, records, leader_epoch, leader_high_watermark, now_ms)
        high_watermark = min(leader_high_watermark, log.log_end_offset)
        if high_watermark > log.high_watermark:
            log.commit_to(high_watermark)
        start_offset = min(leader_start_offset, log.high_watermark)
        if start_offset > log.log_start_offset:
            log.increment_log_start_offset(start_offset)

    def diverged(self, epoch: int, end_offset: int) -> None:
        """Truncate the log where it diverges from the leader's log, in which `epoch` ends at `end_offset`.

        A log without this epoch keeps its records of lower epochs, up to `end_offset` (KIP-279).
        """
        own_epoch, own_end_offset = self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        if end_offset < 0:
            kept = self.log.high_watermark  # Without a leader epoch to compare, only committed records are safe.
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
            self.log.commit_to(leader_log_start_offset)

    def _truncate_to(self, offset: int) -> None:
        try:
            truncate_to(self.log, offset)
        finally:  # Even a failed truncation may have removed records.
            if self.log.log_end_offset < self.log.high_watermark:
                self.log.commit_to(self.log.log_end_offset)
                self.log.await_checkpoint()
