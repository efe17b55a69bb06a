"""A partition in the fetch session of a follower, as the leader sees it."""

from typing import Final, Protocol

from barnabas_broker.replication.not_leader_errors import no_replica
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.fetch import FetchPartition, FetchResult, FetchTopic
from barnabas_broker.wire.framing import FileSlice
from barnabas_core.errors import ApiError, ErrorCode

NO_OFFSET: Final = -1


class Session(Protocol):
    """The fetch session that a partition notifies of changes. Notifications are frequent, so they must be cheap."""

    follower_id: int

    def has_records(self, partition: "FollowerPartition") -> None:
        """Mark the partition as one to read for the next response, because it may have records or an error."""
        ...

    def has_news(self, partition: "FollowerPartition") -> None:
        """Include the partition's high watermark and log start offset in the next response."""
        ...


class FollowerPartition:
    """A partition in a follower's session; `is_waiting` is True until a result with records or an error is sent."""

    __slots__ = ("_session", "_told", "is_waiting", "partition", "topic", "wanted")

    def __init__(self, session: Session, topic: FetchTopic, partition: Partition, wanted: FetchPartition) -> None:
        self._session = session
        self._told = (NO_OFFSET, NO_OFFSET)
        """The high watermark and the log start offset last sent to the follower; NO_OFFSET to send both again."""
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.is_waiting = False

    def changed(self) -> None:
        """Notify the session of appended records or of a new leader if the follower waits for records."""
        if self.is_waiting:
            self._session.has_records(self)

    def high_watermark_advanced(self) -> None:
        """Notify the session of a new high watermark or log start offset if the follower waits for records."""
        if self.is_waiting:
            self._session.has_news(self)

    def named(self, wanted: FetchPartition, broker_epoch: int, now_ms: int) -> FetchResult | None:
        """Store the fetch offset of a request; return a result if the follower's log diverges, otherwise None.

        Raises ApiError if this broker does not lead the partition, if the follower is not one of the replicas, or if
        the log does not contain the fetch offset. Raises StorageError if the disk fails.
        """
        self.wanted = wanted
        self.is_waiting = False
        self._told = (NO_OFFSET, NO_OFFSET)  # The last response may be lost, so the offsets are sent again.
        partition, follower_id, offset = self.partition, self._session.follower_id, wanted.fetch_offset
        partition.check_readable(wanted.current_leader_epoch)
        self._check_is_replica()
        diverging = diverging_epoch(partition, wanted)
        if diverging is not None:
            return self._result(None, diverging)
        log = partition.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            allowed = f"{log.log_start_offset} to {log.log_end_offset}"
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"the fetch offset is {offset}, but the log of {log.topic_partition} has the offsets {allowed}",
            )
        self.is_waiting = True
        partition.fetched_by(follower_id, broker_epoch, offset, wanted.log_start_offset, now_ms)
        return None

    @property
    def has_more(self) -> bool:
        """True if the log ends after the follower's fetch offset."""
        return self.partition.log.log_end_offset > self.wanted.fetch_offset

    def read(self, length_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Return records from the fetch offset on; None if the log has no more, or if the first batch is too large.

        Raises ApiError if this broker does not lead the partition, or if the follower is not one of the replicas.
        Raises StorageError if the disk fails.
        """
        partition, wanted = self.partition, self.wanted
        partition.check_readable(wanted.current_leader_epoch)
        self._check_is_replica()
        log, length_max = partition.log, min(wanted.max_bytes, length_max)
        return log.read(wanted.fetch_offset, length_max, log.log_end_offset, at_least_one_batch=at_least_one_batch)

    def _check_is_replica(self) -> None:
        follower_id, replicas = self._session.follower_id, self.partition.state.replicas
        if follower_id not in replicas:
            raise no_replica(follower_id, replicas)

    def counts_for_throttle(self, leader_id: int) -> bool:
        """True if the bytes sent for the partition count towards the leader's replication throttle."""
        partition = self.partition
        return partition.log.config.leader_throttled_replicas.includes(self.wanted.partition, leader_id)

    @property
    def is_in_sync(self) -> bool:
        """True if the follower is in the ISR, in which case the throttle does not delay the partition."""
        return self._session.follower_id in self.partition.state.isr

    def sent(self, records: FileSlice) -> FetchResult:
        """Return a result with `records`, and count their bytes as sent to followers.

        The follower gets no further result for the partition until one of its Fetch requests lists the partition again.
        """
        self.is_waiting = False
        self.partition.sent_to_follower(records.length)
        return self._result(records)

    def news(self) -> FetchResult | None:
        """Return a result without records that sends the high watermark and the log start offset to the follower.

        Return None if the follower already has both offsets, or does not wait for records.
        """
        log = self.partition.log
        is_known = self._told == (log.high_watermark, log.log_start_offset)
        return None if is_known or not self.is_waiting else self._result(None)

    def refused(self, error: ApiError) -> FetchResult:
        """Return the result for an error.

        In a result with OFFSET_OUT_OF_RANGE, the field for the last stable offset has the log end offset, to which a
        follower truncates its log.
        """
        self.is_waiting = False
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return refusal(self.wanted.partition, error)
        log = self.partition.log
        return FetchResult(
            self.wanted.partition,
            error.code,
            log.high_watermark,
            log.log_end_offset,
            log.log_start_offset,
            None,
        )

    def _result(self, records: FileSlice | None, diverging: tuple[int, int] | None = None) -> FetchResult:
        log = self.partition.log
        high_watermark, log_start_offset = self._told = log.high_watermark, log.log_start_offset
        return FetchResult(
            self.wanted.partition,
            ErrorCode.NONE,
            high_watermark,
            high_watermark,
            log_start_offset,
            records,
            diverging,
        )


def refusal(index: int, error: ApiError) -> FetchResult:
    """Return a result with an error and without offsets."""
    return FetchResult(index, error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None)


def diverging_epoch(partition: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
    """Return where a follower's log diverges from the leader's log (KIP-595), or None if no divergence is known.

    The result is the leader's largest epoch that is at most the follower's last fetched epoch, and the end offset of
    that epoch in the leader's log.
    """
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    return epoch, end_offset
