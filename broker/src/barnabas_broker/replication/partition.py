"""A replica of a partition on this broker, which leads or follows as the metadata says.

A leader appends the batches of clients, and advances the high watermark by what its `LeaderReplica` knows of the
followers. A follower's `FollowerReplica` appends fetched batches and truncates the log.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from barnabas_broker.metadata.controller.decisions.fencing import IsrChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, PartitionState
from barnabas_broker.replication.leader_replica import (
    FollowerReplica,
    LeaderReplica,
    PartitionEnvironment,
    WaitList,
    is_ahead,
)
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.inspection import inspects_records
from barnabas_broker.storage.logs.log import Log, LogAppend
from barnabas_broker.storage.logs.truncation import append_marker
from barnabas_broker.storage.producer_state import Verification
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.record_batch import BatchHeader
from barnabas_core.clock import Timers, monotonic_ms
from barnabas_core.config.log_config import LONG_MAX, LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition, is_internal


def why_missing(
    image: MetadataImage, broker_id: int, name: str | None, topic_id: UUID | None, index: int, *, is_unmade: bool
) -> ApiError:
    """Return the error for a partition that this broker does not have.

    `is_unmade` is True if the metadata assigns the partition to this broker, and the broker has yet to create it.
    """
    if name is None:
        name = image.topic_name(topic_id) if topic_id is not None else None
        if name is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}")
    document = image.topics.get(name)
    if document is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
    if not 0 <= index < len(document.partitions):
        allowed = f"the topic has the partitions 0 to {len(document.partitions) - 1}"
        return ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of topic {name}; {allowed}"
        )
    if is_unmade:
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} is being created on this broker")
    if broker_id in document.partitions[index].replicas:
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {name}-{index} is offline, damaged or missing")
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name}-{index} has no replica on this broker")


def other_epoch(asked: int, current: int) -> ApiError:
    """Return the error for a leader epoch that is older or newer than the current one (KIP-320)."""
    code = ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH
    return ApiError(code, f"the request has leader epoch {asked}, but the current leader epoch is {current}")


def no_replica(broker_id: int, replicas: Sequence[int]) -> ApiError:
    """Return the error for a follower that is not a replica in the leader's metadata."""
    return ApiError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} is not a replica; the replicas are {tuple(replicas)}"
    )


Done = Callable[[ApiError | None], object]
"""A callback that is called once, with None when the records are committed, or with the error that ended the wait."""

LOST_LEADERSHIP: Final = ApiError(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker's leadership ended before the records were committed"
)


class CommitQueue:
    """The waiting appends of one partition, ordered by their end offsets.

    Callbacks run in the next turn of the event loop, so that they never interrupt an operation of the partition.
    """

    __slots__ = ("_due", "_timers", "waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.waiting: deque[tuple[int, Done]] | None = None
        """The end offsets of the appends and their callbacks; None before the first one, as a deque takes 0.6 KB."""
        self._due: list[tuple[Done, ApiError | None]] = []

    def another(self) -> "CommitQueue":
        """Return an empty queue with the same timers."""
        return CommitQueue(self._timers)

    def wait(self, end_offset: int, done: Done) -> None:
        """Call `done(None)` once the high watermark is at `end_offset` or beyond."""
        waiting = self.waiting
        if waiting is None:
            waiting = self.waiting = deque()
        if not waiting or waiting[-1][0] <= end_offset:
            waiting.append((end_offset, done))
        else:  # A retried batch is in the log already, so it is inserted before later batches that wait.
            waiting.insert(sum(1 for other, _ in waiting if other <= end_offset), (end_offset, done))

    def committed(self, high_watermark: int) -> None:
        """Complete the appends up to the high watermark."""
        waiting = self.waiting
        while waiting and waiting[0][0] <= high_watermark:
            self._call_soon(waiting.popleft()[1], None)

    def fail(self, error: ApiError) -> None:
        """Fail all waiting appends with `error`."""
        while self.waiting:
            self._call_soon(self.waiting.popleft()[1], error)

    def _call_soon(self, done: Done, error: ApiError | None) -> None:
        if not self._due:
            self._timers.call_soon(self._call_due)
        self._due.append((done, error))

    def _call_due(self) -> None:
        due, self._due = self._due, []
        for done, error in due:
            done(error)


class AppendWatcher(Protocol):
    """An object with methods that a partition calls at each change; the object serves one follower.

    Changes are frequent, so the methods must be cheap.
    """

    def changed(self) -> None:
        """Note that records were appended to the partition, or that the leader of the partition changed."""
        ...

    def high_watermark_advanced(self) -> None:
        """Note that the high watermark or the log start offset of the partition advanced."""
        ...


class AppendWatchers:
    """The watchers of one partition: at most one for each follower, by the follower's broker id."""

    __slots__ = ("by_follower",)

    def __init__(self) -> None:
        self.by_follower: dict[int, AppendWatcher] = {}

    def watch(self, follower_id: int, watcher: AppendWatcher) -> None:
        """Register a follower's watcher, which gets a call for each change of the partition.

        The new watcher replaces an earlier watcher of the same follower.
        """
        self.by_follower[follower_id] = watcher

    def unwatch(self, follower_id: int, watcher: AppendWatcher) -> None:
        """Unregister the watcher of a follower, unless the follower has another watcher now."""
        if self.by_follower.get(follower_id) is watcher:
            del self.by_follower[follower_id]

    def changed(self) -> None:
        """Note in all watchers that records were appended, or that the leader changed."""
        for watcher in self.by_follower.values():
            watcher.changed()

    def high_watermark_advanced(self) -> None:
        """Note in all watchers that the high watermark or the log start offset advanced."""
        for watcher in self.by_follower.values():
            watcher.high_watermark_advanced()


class AppendWaits:
    """The appends without a response yet: with acks=all they wait for replication, otherwise for a sync to disk.

    Appends without acks=all wait only if `flush.messages` requires a sync.
    """

    __slots__ = ("_syncs", "commits")

    def __init__(self, commits: CommitQueue) -> None:
        self.commits = commits
        self._syncs: CommitQueue | None = None

    def wait(self, end_offset: int, done: Done, high_watermark: int, *, all_replicas: bool = True) -> None:
        """Call `done(None)` once the records below `end_offset` may be acknowledged.

        With `all_replicas`, the high watermark must reach `end_offset`; otherwise, the log must be synced up to there.
        """
        if all_replicas:
            self.commits.wait(end_offset, done)
            self.commits.committed(high_watermark)
        else:
            self._syncs = self._syncs or self.commits.another()
            self._syncs.wait(end_offset, done)

    def synced(self, ack_end_offset: int) -> None:
        """Complete the appends that wait for a sync and end at `ack_end_offset` or before."""
        if self._syncs is not None:
            self._syncs.committed(ack_end_offset)

    def fail(self, error: ApiError) -> None:
        """Fail all waiting appends with `error`."""
        self.commits.fail(error)
        if self._syncs is not None:
            self._syncs.fail(error)


ANY_ACKS: Final = frozenset({-1, 0, 1})
LEADER_ACKS: Final = frozenset({0, 1})
NO_ACKS: Final[frozenset[int]] = frozenset()


class Partition:
    """A replica of a partition; `leader` is None while it follows, `failure` is the reason why it is offline."""

    __slots__ = (
        "_committing",
        "_environment",
        "_segment_bytes",
        "_timestamp_after_max_ms",
        "accepted_acks",
        "batch_bytes_max",
        "bytes_in",
        "bytes_out",
        "failed_epoch",
        "failure",
        "follower",
        "inspects_records",
        "isr_expands",
        "isr_shrinks",
        "isr_size_min",
        "leader",
        "log",
        "messages_in",
        "replication_bytes_out",
        "state",
        "topic_id",
        "topic_partition",
        "waiters",
        "waits",
        "watchers",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID,
        log: Log,
        high_watermark: int,
        environment: PartitionEnvironment,
        waiters: WaitList,
        commits: CommitQueue,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.log = log
        log.commit_to(min(max(high_watermark, log.log_start_offset), log.log_end_offset))
        self.follower = FollowerReplica(log)
        self.leader: LeaderReplica | None = None
        self._committing: LeaderReplica | None = None
        """The same as `leader`, but None while the high watermark must not advance.

        The high watermark must not advance while the partition is offline or has an ELR (KIP-966).
        """
        self.state = PartitionState(replicas=(), leader=NO_LEADER, leader_epoch=-1, isr=(), partition_epoch=-1)
        """The partition's state in the metadata."""
        self.waiters = waiters
        """The requests that wait for committed records or for a change of the leader."""
        self.waits = AppendWaits(commits)
        self.failure: StorageError | None = None
        self.failed_epoch = -1
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_out = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.accepted_acks = NO_ACKS
        """The values of `acks` that a Produce may use now; `check_writable` raises the error for other values."""
        self.isr_size_min = 0
        """The number of in-sync replicas that acks=all requires, at most the number of replicas (KIP-966)."""
        self._environment = environment
        self.watchers = AppendWatchers()
        self.configure(log.config)

    @property
    def leader_epoch(self) -> int:
        """The leader epoch, which each election increases."""
        return self.state.leader_epoch

    @property
    def isr_size(self) -> int:
        """The number of in-sync replicas in the metadata."""
        return len(self.state.isr)

    def configure(self, config: LogConfig) -> None:
        """Apply the settings of the topic; a lower `min.insync.replicas` may advance the high watermark."""
        self.log.configure(config)
        self.inspects_records = inspects_records(config)
        self.batch_bytes_max = config.message_bytes_max
        self._segment_bytes = config.segment_bytes
        stamps = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._timestamp_after_max_ms = LONG_MAX if stamps else config.timestamp_after_max_ms
        self._update_accepted_acks()
        self._advance_high_watermark(monotonic_ms(self._environment.clock))

    def _update_accepted_acks(self) -> None:
        """Compute `accepted_acks`, `isr_size_min` and `_committing` again.

        For an internal topic, `accepted_acks` is empty, so that each Produce request is checked for permission to write
        to the topic.
        """
        leads = self.leader is not None and self.failure is None
        self.isr_size_min = min(self.log.config.min_insync_replicas, len(self.state.replicas))
        acks = ANY_ACKS if self.isr_size >= self.isr_size_min else LEADER_ACKS
        self.accepted_acks = acks if leads and not is_internal(self.topic_partition.topic) else NO_ACKS
        self._committing = None if self.failure is not None or self.state.elr else self.leader

    def go_offline(self, failure: StorageError) -> None:
        """Take the partition offline: all requests fail with KAFKA_STORAGE_ERROR until `come_back` is called."""
        self.failure = failure
        self.failed_epoch = self.leader_epoch
        self._update_accepted_acks()
        self.waits.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
        self._wake_all()

    def come_back(self, log: Log) -> None:
        """Serve a log that was reloaded after a failure. The controller must have handled the failure (`counts_on`)."""
        config, self.failure = self.log.config, None
        log.commit_to(min(self.log.high_watermark, log.log_end_offset))
        self._use(log)
        if is_ahead(log, self.state):
            self._resign()
        elif self.leader is not None:
            self._lead(self.state, monotonic_ms(self._environment.clock))
        self.configure(config)
        self._wake_all()

    def move_to(self, log: Log) -> None:
        """Replace the log by a log with the same records in another log dir."""
        log.configure(self.log.config)
        log.commit_to(self.log.high_watermark)
        self._use(log)

    def _use(self, log: Log) -> None:
        self.log = log
        self.follower.use(log)

    def apply(self, state: PartitionState) -> None:
        """Become leader or follower as `state` says; ignore a `state` whose partition epoch is not newer."""
        if state.partition_epoch <= self.state.partition_epoch:
            return
        previous, self.state = self.state, state
        now_ms = monotonic_ms(self._environment.clock)
        if state.leader != self._environment.broker_id or is_ahead(self.log, state):
            self._resign()
        elif self.leader is None or state.leader_epoch != previous.leader_epoch:
            self._resign()
            self._lead(state, now_ms)
        else:
            self.isr_expands += len(state.isr) > len(previous.isr)
            self.isr_shrinks += len(state.isr) < len(previous.isr)
            self.leader.committed(state, now_ms)
        self._update_accepted_acks()
        self._advance_high_watermark(now_ms)
        # A caught-up follower may fetch much later, so check now whether it may join the ISR.
        if self.leader is not None:
            self._propose(self.leader, self.leader.isr_with_joining(self.log.high_watermark))
        self._wake_all()

    def resign(self) -> None:
        """Stop leading: waiting appends fail with NOT_LEADER_OR_FOLLOWER, and waiting fetches are evaluated again."""
        self._resign()
        self._update_accepted_acks()
        self._wake_all()

    def _resign(self) -> None:
        self.leader = None
        self.waits.fail(LOST_LEADERSHIP)

    def _lead(self, state: PartitionState, now_ms: int) -> None:
        broker_id, is_eligible = self._environment.broker_id, self._environment.is_eligible
        # A compaction bound may be the high watermark of an earlier leader, which may be above the end of this log.
        self.log.compaction.lower_to(self.log.log_end_offset)
        self.leader = LeaderReplica(broker_id, state, self.log.log_end_offset, now_ms, is_eligible)

    def check_readable(self, current_leader_epoch: int) -> None:
        """Raise ApiError if this replica is offline, or does not lead in this epoch (KIP-320); -1 means any epoch."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))
        if current_leader_epoch >= 0 and current_leader_epoch != self.state.leader_epoch:
            self._environment.turned_away()
            raise other_epoch(current_leader_epoch, self.leader_epoch)
        if self.leader is None:
            self._environment.turned_away()
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")

    def check_writable(self, *, all_replicas: bool) -> None:
        """Raise ApiError if this replica does not lead or, with `all_replicas` (acks=all), if the ISR is too small."""
        self.check_readable(-1)
        if all_replicas and self.isr_size < self.isr_size_min:
            allowed = f"min.insync.replicas={self.log.config.min_insync_replicas}"
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"only {self.isr_size} replicas are in sync; the topic needs {allowed}"
            )

    def check_caught_up(self) -> None:
        """Raise ApiError if this broker leads, but the high watermark is still below the start of its leader epoch."""
        leader = self.leader
        if leader is not None and self.log.high_watermark < leader.epoch_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark of {self.topic_partition} is {self.log.high_watermark}, but "
                f"leader epoch {self.leader_epoch} begins at offset {leader.epoch_start_offset}; try again later",
            )

    def append_as_leader(
        self, batch: memoryview, header: BatchHeader, now_ms: int, verification: Verification | None = None
    ) -> LogAppend:
        """Append a validated batch unless it is a duplicate; wake waiting requests. `now_ms` is the wall-clock time.

        Raises ApiError if the batch is invalid here (`Log.append`) or this replica does not lead, and StorageError.
        """
        if header.max_timestamp_ms > now_ms + self._timestamp_after_max_ms:
            allowed = f"message.timestamp.after.max.ms={self.log.config.timestamp_after_max_ms}"
            message = (
                f"the timestamp {header.max_timestamp_ms} exceeds the broker's time {now_ms} by more than {allowed}"
            )
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)
        size_bytes = len(batch)
        if size_bytes > self._segment_bytes:
            message = f"the batch has {size_bytes} bytes, but the limit is segment.bytes={self._segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        leader = self.leader
        if leader is None:
            raise LOST_LEADERSHIP
        appended = self.log.append(batch, header, leader.leader_epoch, now_ms, verification)
        if appended.duplicate:
            return appended
        self.messages_in += header.record_count
        self.bytes_in += size_bytes
        if leader.followers:
            self._notify_followers(leader, appended.base_offset)
        else:
            self._advance_high_watermark()
        return appended

    def _notify_followers(self, leader: LeaderReplica, previous_end_offset: int) -> None:
        since_boot_ms = monotonic_ms(self._environment.clock)
        leader.appended(previous_end_offset, since_boot_ms)
        self._advance_high_watermark(since_boot_ms)
        self.watchers.changed()

    def append_marker(self, marker: Marker, transaction_version: int, now_ms: int) -> int:
        """Append a transaction marker; return its offset. Raises ApiError and StorageError."""
        leader = self.leader
        if leader is None:
            raise LOST_LEADERSHIP
        offset = append_marker(self.log, marker, transaction_version, self.state.leader_epoch, now_ms)
        leader.appended(offset, monotonic_ms(self._environment.clock))
        self.synced()
        self._wake_all()
        return offset

    def delete_records_before(self, offset: int) -> None:
        """Advance the log start offset, which followers learn with their next responses."""
        self.log.increment_log_start_offset(offset)
        self.watchers.high_watermark_advanced()

    def synced(self) -> None:
        """Advance the high watermark, and complete waiting appends, after a sync of the log (`flush.messages`)."""
        self._advance_high_watermark(monotonic_ms(self._environment.clock))
        self.waits.synced(self.log.syncs.ack_end_offset(self.log.log_end_offset))

    def _advance_high_watermark(self, now_ms: int = 0) -> None:
        """Advance the leader's high watermark, and wake the requests and followers that wait for it.

        `now_ms` serves only to measure how long followers lag. The high watermark of a partition that is offline or has
        an ELR does not advance (KIP-966).
        """
        leader, log = self._committing, self.log
        if leader is None:
            return
        offset, unsynced_from = log.log_end_offset, log.syncs.unsynced_from
        if leader.followers:
            lag_ms_max = self._environment.lag_ms_max()
            offset = leader.high_watermark(offset, self.isr_size_min, now_ms, lag_ms_max)
        if unsynced_from is not None and unsynced_from < offset:
            offset = unsynced_from
        if offset <= log.high_watermark:
            return
        log.commit_to(offset)
        if self.waits.commits.waiting:
            self.waits.commits.committed(offset)
        if self.waiters.waiting:
            self.waiters.mark()
        if self.watchers.by_follower:
            self.watchers.high_watermark_advanced()

    def _wake_all(self) -> None:
        self.waiters.mark()
        self.watchers.changed()

    def read(self, offset: int, length_max: int, offset_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Return batches from `offset` to `offset_max`, None if there are none; count their bytes as sent to clients.

        Raises ApiError and StorageError.
        """
        records = self.log.read(offset, length_max, offset_max, at_least_one_batch=at_least_one_batch)
        if records is not None:
            self.bytes_out += records.length
        return records

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest known leader epoch up to `epoch` with its end offset, (-1, -1) if there is none.

        A leader knows its own leader epoch even before the first append.
        """
        leader, latest_epoch = self.leader, self.log.epochs.latest_epoch
        if leader is None or epoch <= latest_epoch or epoch > self.leader_epoch:
            return self.log.epochs.end_offset_for(epoch, self.log.log_end_offset)
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return (epoch if latest_epoch < 0 else latest_epoch), leader.epoch_start_offset

    def sent_to_follower(self, size_bytes: int) -> None:
        """Count bytes that were sent to a follower."""
        self.replication_bytes_out += size_bytes

    def fetched_by(
        self, follower_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """Record that a follower has all records below `fetch_offset`; update the high watermark and the ISR."""
        leader, log = self.leader, self.log
        follower = None if leader is None else leader.followers.get(follower_id)
        if leader is None or follower is None:
            return
        if log_start_offset > follower.log_start_offset:
            self.waiters.mark()
        follower.fetched(broker_epoch, fetch_offset, log_start_offset, log.log_end_offset, now_ms)
        self._propose(leader, leader.isr_with_joining(log.high_watermark))
        self._advance_high_watermark(now_ms)

    def check_isr(self, now_ms: int) -> None:
        """Propose an ISR without replicas that lag or, if no replica lags, with replicas that may join."""
        leader, log = self.leader, self.log
        if leader is not None and self.failure is None:
            staying = leader.isr_without_laggards(log.log_end_offset, now_ms, self._environment.lag_ms_max())
            self._propose(leader, staying or leader.isr_with_joining(log.high_watermark))

    def _propose(self, leader: LeaderReplica, isr: frozenset[int] | None) -> None:
        if isr is not None:
            leader.propose(isr)
            self._environment.propose_isr(self)

    def isr_change(self, *, confirms: bool) -> IsrChange | None:
        """Return the ISR to write to the metadata, or None if no proposal is pending.

        The result is the proposed ISR. With `confirms=True` it is the current ISR, whose write shows whether an earlier
        write of the proposed ISR has succeeded.
        """
        leader, state = self.leader, self.state
        own_epoch = self._environment.own_broker_epoch()
        epochs = None if leader is None else leader.proposal(own_epoch, confirms=confirms)
        if epochs is None:
            return None
        return IsrChange(self.topic_partition, self.topic_id, state.leader_epoch, state.partition_epoch, epochs)

    def isr_change_refused(self, change: IsrChange) -> None:
        """Drop the pending ISR, which was refused and will not be written; advance the high watermark if possible."""
        if self.leader is not None and self.state.partition_epoch == change.partition_epoch:
            self.leader.refused()
            self._advance_high_watermark(monotonic_ms(self._environment.clock))
