"""One partition in a follower's fetch session, as its leader sees it."""

from typing import Final, Protocol

from barnabas_broker.replication.not_leader_errors import no_replica
from barnabas_broker.replication.partition import Partition
from barnabas_broker.wire.fetch import FetchPartition, FetchResult, FetchTopic
from barnabas_broker.wire.parts import FileSlice
from barnabas_core.errors import ApiError, ErrorCode

NO_OFFSET: Final = -1


class Session(Protocol):
    """Who is to hear of changes; both calls are cheap and may come many times a turn."""

    follower_id: int

    def has_records(self, partition: "FollowerPartition") -> None:
        """There may be records or an error for it."""
        ...

    def has_news(self, partition: "FollowerPartition") -> None:
        """There is something to tell with the next answer."""
        ...


class FollowerPartition:
    """An AppendWatcher. While `is_waiting` the follower has all it was sent and waits for what comes next."""

    __slots__ = ("_session", "_told", "is_waiting", "partition", "topic", "wanted")

    def __init__(self, session: Session, topic: FetchTopic, partition: Partition, wanted: FetchPartition) -> None:
        self._session = session
        self._told = (NO_OFFSET, NO_OFFSET)
        """High watermark and log start offset that the follower knows."""
        self.topic = topic
        self.partition = partition
        self.wanted = wanted
        self.is_waiting = False

    def changed(self) -> None:
        """Records were appended, or leadership has changed."""
        if self.is_waiting:
            self._session.has_records(self)

    def high_watermark_advanced(self) -> None:
        """Worth telling when there is an answer anyway."""
        if self.is_waiting:
            self._session.has_news(self)

    def named(self, wanted: FetchPartition, broker_epoch: int, now_ms: int) -> FetchResult | None:
        """The follower asks from here on, so all before is on its disk; a result when that parts from the log here.

        ApiError, StorageError.
        """
        self.wanted = wanted
        self.is_waiting = False
        self._told = (NO_OFFSET, NO_OFFSET)  # Who asks anew may not have taken over what came with the last answer.
        partition, follower_id, offset = self.partition, self._session.follower_id, wanted.fetch_offset
        partition.check_readable(wanted.current_leader_epoch)
        self._check_is_replica()
        diverging = diverging_epoch(partition, wanted)
        if diverging is not None:
            return self._result(None, diverging)
        log = partition.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            allowed = f"{log.log_start_offset} to {log.log_end_offset}"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} of {log.topic_partition}: it has {allowed}")
        self.is_waiting = True
        partition.fetched_by(follower_id, broker_epoch, offset, wanted.log_start_offset, now_ms)
        return None

    @property
    def has_more(self) -> bool:
        """Whether there is something that the follower does not have."""
        return self.partition.log.log_end_offset > self.wanted.fetch_offset

    def read(self, length_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """What there is now; None when there is nothing, or its first batch is too long. ApiError, StorageError."""
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
        """Whether what is sent of it counts for the leaders' throttle here."""
        partition = self.partition
        return partition.log.config.leader_throttled_replicas.includes(self.wanted.partition, leader_id)

    @property
    def is_in_sync(self) -> bool:
        """Whether the follower is in the ISR: then nothing is held back."""
        return self._session.follower_id in self.partition.state.isr

    def sent(self, records: FileSlice) -> FetchResult:
        """These records go to the follower; nothing more does until it has named the partition again."""
        self.is_waiting = False
        self.partition.sent_to_follower(records.length)
        return self._result(records)

    def news(self) -> FetchResult | None:
        """A result without records, if the follower waits and does not know the offsets of now."""
        partition = self.partition
        is_known = self._told == (partition.high_watermark, partition.log_start_offset)
        return None if is_known or not self.is_waiting else self._result(None)

    def refused(self, error: ApiError) -> FetchResult:
        """The error goes to the follower. Out of range it is told the log's ends, the last of them as stable offset."""
        self.is_waiting = False
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            return refusal(self.wanted.partition, error)
        partition, log = self.partition, self.partition.log
        return FetchResult(
            self.wanted.partition,
            error.code,
            partition.high_watermark,
            log.log_end_offset,
            log.log_start_offset,
            None,
        )

    def _result(self, records: FileSlice | None, diverging: tuple[int, int] | None = None) -> FetchResult:
        partition = self.partition
        high_watermark, log_start_offset = self._told = partition.high_watermark, partition.log_start_offset
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
    """An error and no offsets."""
    return FetchResult(index, error.code, NO_OFFSET, NO_OFFSET, NO_OFFSET, None)


def diverging_epoch(partition: Partition, wanted: FetchPartition) -> tuple[int, int] | None:
    """Where the logs part, for who has fetched beyond what the leader knows of that epoch (KIP-595)."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = partition.end_offset_for_epoch(wanted.last_fetched_epoch)
    if epoch == wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
        return None
    return epoch, end_offset
