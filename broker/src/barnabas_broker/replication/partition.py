"""One replica of a partition on this broker, whether it leads or follows as the metadata says.

As leader it appends what clients send, knows its followers and moves the high watermark. `replica` is what it does as
follower.
"""

from typing import Final
from uuid import UUID

from barnabas_broker.metadata.controller.decisions.isr_changes import IsrChange
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.commit_queue import LOST_LEADERSHIP, CommitQueue, Done
from barnabas_broker.replication.leader_state import LeaderState
from barnabas_broker.replication.not_leader_errors import other_epoch
from barnabas_broker.replication.partition_environment import AppendWatcher, PartitionEnvironment, is_ahead
from barnabas_broker.replication.purgatory import WaitList
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.inspection.batch_inspection import inspects_records
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_offsets import LogAppend
from barnabas_broker.storage.logs.marker_append import append_marker
from barnabas_broker.wire.parts import FileSlice
from barnabas_broker.wire.record_batch import BatchHeader
from barnabas_broker.wire.transaction_markers import Marker
from barnabas_core.clock import monotonic_ms
from barnabas_core.config.log_config import LONG_MAX, LogConfig, TimestampType
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_name import is_internal
from barnabas_core.topic_partition import TopicPartition

ANY_ACKS: Final = frozenset({-1, 0, 1})
LEADER_ACKS: Final = frozenset({0, 1})
NO_ACKS: Final[frozenset[int]] = frozenset()


class Partition(Replica):
    """`failure` says why the partition is offline, if it is; `failed_epoch` is the leader epoch in which that began."""

    __slots__ = (
        "_environment",
        "_leadership",
        "_segment_bytes",
        "_syncs",
        "_timestamp_after_max_ms",
        "_watchers",
        "accepted_acks",
        "batch_bytes_max",
        "bytes_in",
        "bytes_out",
        "commits",
        "failed_epoch",
        "failure",
        "inspects_records",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "replication_bytes_out",
        "waiters",
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
        super().__init__(topic_partition, topic_id, log, high_watermark)
        self.waiters = waiters
        """Who waits for committed records, or for leadership to change."""
        self.commits = commits
        self._syncs: CommitQueue | None = None
        """Who waits for this disk; few topics have `flush.messages`."""
        self.failure: StorageError | None = None
        self.failed_epoch = -1
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.replication_bytes_out = 0
        self.isr_expands = 0
        self.isr_shrinks = 0
        self.accepted_acks = NO_ACKS
        """Which `acks` any client's Produce may ask for now; `check_writable` says why not the others."""
        self._environment = environment
        self._leadership: LeaderState | None = None
        self._watchers: dict[int, AppendWatcher] = {}
        self.configure(log.config)

    @property
    def is_leader(self) -> bool:
        """Whether it is this replica that leads."""
        return self._leadership is not None

    @property
    def leadership(self) -> LeaderState | None:
        """What the leader knows of its followers; None on a follower."""
        return self._leadership

    @property
    def isr_size(self) -> int:
        """How many replicas are in sync, as the metadata has it."""
        return len(self._state.isr)

    @property
    def isr_size_min(self) -> int:
        """How many replicas acks=all wants in sync: `min.insync.replicas`, or all where there are fewer (KIP-966)."""
        return min(self.log.config.min_insync_replicas, len(self._state.replicas))

    def configure(self, config: LogConfig) -> None:
        """Take over the topic's settings."""
        self.log.configure(config)
        self.inspects_records = inspects_records(config)
        self.batch_bytes_max = config.message_bytes_max
        self._segment_bytes = config.segment_bytes
        stamps = config.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._timestamp_after_max_ms = LONG_MAX if stamps else config.timestamp_after_max_ms
        self._set_accepted_acks()
        self._advance_high_watermark(monotonic_ms(self._environment.clock))

    def _set_accepted_acks(self) -> None:
        """What follows from leadership, ISR, settings and the disk. Few clients may write to an internal topic."""
        enough = self.isr_size >= self.isr_size_min
        is_open = self.is_leader and self.failure is None and not is_internal(self.topic_partition.topic)
        self.accepted_acks = (ANY_ACKS if enough else LEADER_ACKS) if is_open else NO_ACKS

    def go_offline(self, failure: StorageError) -> None:
        """Answer everybody with an error until the log comes back."""
        self.failure = failure
        self.failed_epoch = self.leader_epoch
        self._set_accepted_acks()
        self._fail_waiting(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
        self._wake_all()

    def come_back(self, log: Log) -> None:
        """The log was loaded anew from a disk that works again; the metadata counts on it no more (`counts_on`)."""
        config, self.log, self.failure = self.log.config, log, None
        self.high_watermark = min(self.high_watermark, log.log_end_offset)
        if is_ahead(log, self._state):
            self._resign()
        elif self.is_leader:
            self._lead(self._state, monotonic_ms(self._environment.clock))
        self.configure(config)
        self._wake_all()

    def apply(self, state: PartitionState) -> None:
        """Lead or follow as the metadata says now. What is older than what is known changes nothing."""
        if state.partition_epoch <= self._state.partition_epoch:
            return
        previous, self._state = self._state, state
        now_ms = monotonic_ms(self._environment.clock)
        if state.leader != self._environment.broker_id or is_ahead(self.log, state):
            self._resign()
        elif self._leadership is None or state.leader_epoch != previous.leader_epoch:
            self._resign()
            self._lead(state, now_ms)
        else:
            self.isr_expands += len(state.isr) > len(previous.isr)
            self.isr_shrinks += len(state.isr) < len(previous.isr)
            self._leadership.committed(state, now_ms)
        self._set_accepted_acks()
        self._advance_high_watermark(now_ms)
        self._propose_joining()  # Who came while a change was on its way; an idle follower does not come again.
        self._wake_all()

    def resign(self) -> None:
        """The replica is not here any more: whoever waits has to look for the leader elsewhere."""
        self._resign()
        self._set_accepted_acks()
        self._wake_all()

    def _resign(self) -> None:
        self._leadership = None
        self._fail_waiting(LOST_LEADERSHIP)

    def _fail_waiting(self, error: ApiError) -> None:
        self.commits.fail(error)
        if self._syncs is not None:
            self._syncs.fail(error)

    def _lead(self, state: PartitionState, now_ms: int) -> None:
        broker_id, is_eligible = self._environment.broker_id, self._environment.is_eligible
        self.log.compaction.lower_to(self.log.log_end_offset)  # What was never fetched is lost.
        self._leadership = LeaderState(broker_id, state, self.log.log_end_offset, now_ms, is_eligible)

    def check_readable(self, current_leader_epoch: int) -> None:
        """ApiError unless this replica leads and the client knows its epoch (-1: the client does not say; KIP-320)."""
        if self.failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(self.failure))
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self._environment.turned_away()
            raise other_epoch(current_leader_epoch, self.leader_epoch)
        if self._leadership is None:
            self._environment.turned_away()
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {self.topic_partition}")

    def check_writable(self, *, all_replicas: bool) -> None:
        """ApiError unless this replica leads and, for acks=all, enough replicas are in sync."""
        self.check_readable(-1)
        if all_replicas and self.isr_size < self.isr_size_min:
            allowed = f"min.insync.replicas={self.log.config.min_insync_replicas}"
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"{self.isr_size} replicas in sync; {allowed}")

    def check_caught_up(self) -> None:
        """ApiError while a new leader's high watermark has not reached its epoch: the end may look too small."""
        leadership = self._leadership
        if leadership is not None and self.high_watermark < leadership.epoch_start_offset:
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark of {self.topic_partition} is {self.high_watermark}, "
                f"its leader epoch {self.leader_epoch} begins at {leadership.epoch_start_offset}; ask again",
            )

    def append_as_leader(self, batch: memoryview, header: BatchHeader, now_ms: int) -> LogAppend:
        """Append one checked batch and wake who waits; `now_ms` is the wall clock's, all other times here are not.

        ApiError for its sequence or its timestamps, StorageError for the disk.
        """
        if header.max_timestamp_ms > now_ms + self._timestamp_after_max_ms:  # Too early: `inspects_records`.
            allowed = f"message.timestamp.after.max.ms={self.log.config.timestamp_after_max_ms}"
            message = f"a timestamp of {header.max_timestamp_ms} with the broker's clock at {now_ms}; {allowed}"
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, message)
        if len(batch) > self._segment_bytes:
            message = f"a batch of {len(batch)} bytes; segment.bytes={self._segment_bytes}"
            raise ApiError(ErrorCode.RECORD_LIST_TOO_LARGE, message)
        leadership = self._leadership
        if leadership is None:
            raise LOST_LEADERSHIP
        previous_end_offset = self.log.log_end_offset
        appended = self.log.append(batch, header, self._state.leader_epoch, now_ms)
        if not appended.duplicate:
            self.messages_in += header.record_count
            self.bytes_in += len(batch)
            since_boot_ms = 0
            if leadership.followers:  # Without any nobody asks for the time.
                since_boot_ms = monotonic_ms(self._environment.clock)
                leadership.appended(previous_end_offset, since_boot_ms)
            self._advance_high_watermark(since_boot_ms)
            for watcher in self._watchers.values():
                watcher.changed()
        return appended

    def append_marker(self, marker: Marker, transaction_version: int, now_ms: int) -> int:
        """Append what ends a transaction; return its offset. ApiError, StorageError."""
        leadership = self._leadership
        if leadership is None:
            raise LOST_LEADERSHIP
        epoch, high_watermark = self._state.leader_epoch, self.high_watermark
        offset = append_marker(self.log, marker, transaction_version, epoch, high_watermark, now_ms)
        leadership.appended(offset, monotonic_ms(self._environment.clock))
        self.synced()
        self._wake_all()
        return offset

    def delete_records_before(self, offset: int) -> None:
        """Followers hear of it with their next answer."""
        self.log.increment_log_start_offset(offset)
        for watcher in self._watchers.values():
            watcher.high_watermark_advanced()

    def when_committed(self, end_offset: int, done: Done, *, all_replicas: bool = True) -> None:
        """`done(None)` once the high watermark is at `end_offset`, `done(error)` when this leadership ends before.

        Not for all replicas: once this log may acknowledge up to there.
        """
        if all_replicas:
            self.commits.wait(end_offset, done)
            self.commits.committed(self.high_watermark)
        else:
            self._syncs = self._syncs or self.commits.another()
            self._syncs.wait(end_offset, done)

    def synced(self) -> None:
        """More of the log is on the disk, as `flush.messages` asks."""
        self._advance_high_watermark(monotonic_ms(self._environment.clock))
        if self._syncs is not None:
            self._syncs.committed(self.log.ack_end_offset)

    def _advance_high_watermark(self, now_ms: int) -> None:
        """On the leader; it never goes back. Nothing is committed without those that may be elected (KIP-966)."""
        leadership = self._leadership
        if leadership is None or self.failure is not None or self._state.elr:
            return
        offset = self.log.log_end_offset
        if leadership.followers:
            lag_ms_max = self._environment.lag_ms_max()
            offset = leadership.high_watermark(offset, self.isr_size_min, now_ms, lag_ms_max)
        if self.log.syncs.unsynced_from is not None:
            offset = min(offset, self.log.syncs.unsynced_from)
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        if self.commits:
            self.commits.committed(offset)
        if self.waiters:
            self.waiters.mark()
        for watcher in self._watchers.values():
            watcher.high_watermark_advanced()

    def _wake_all(self) -> None:
        self.waiters.mark()
        for watcher in self._watchers.values():
            watcher.changed()

    def read(self, offset: int, length_max: int, offset_max: int, *, at_least_one_batch: bool) -> FileSlice | None:
        """Return batches from `offset` to `offset_max`; None if there are none. ApiError OFFSET_OUT_OF_RANGE."""
        records = self.log.read(offset, length_max, offset_max, at_least_one_batch=at_least_one_batch)
        if records is not None:
            self.bytes_out += records.length
        return records

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` that is known here, and where it ends; (-1, -1) when that is unknown.

        The epoch of a leader that has not written yet counts too: whatever lies behind its start is not its own.
        """
        leadership, latest_epoch = self._leadership, self.log.epochs.latest_epoch
        if leadership is None or epoch <= latest_epoch or epoch > self.leader_epoch:
            return self.log.end_offset_for_epoch(epoch)
        if epoch == self.leader_epoch:
            return epoch, self.log.log_end_offset
        return (epoch if latest_epoch < 0 else latest_epoch), leadership.epoch_start_offset

    # As leader, to its followers.

    def watch_appends(self, follower_id: int, watcher: AppendWatcher) -> None:
        """Tell `watcher` of every change from now on; it takes the place of the follower's earlier one."""
        self._watchers[follower_id] = watcher

    def unwatch_appends(self, follower_id: int, watcher: AppendWatcher) -> None:
        """No more, unless another watcher has taken its place."""
        if self._watchers.get(follower_id) is watcher:
            del self._watchers[follower_id]

    def sent_to_follower(self, size_bytes: int) -> None:
        """Count what a follower gets."""
        self.replication_bytes_out += size_bytes

    def fetched_by(
        self, follower_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """A replica fetches from `fetch_offset` on, which is in the log, so all below it is on its disk."""
        leadership = self._leadership
        follower = leadership.followers.get(follower_id) if leadership is not None else None
        if leadership is None or follower is None:
            return
        if log_start_offset > follower.log_start_offset:
            self.waiters.mark()
        follower.fetched(broker_epoch, fetch_offset, log_start_offset, self.log.log_end_offset, now_ms)
        self._propose_joining()
        self._advance_high_watermark(now_ms)

    def check_isr(self, now_ms: int) -> None:
        """Propose an ISR without those that lag, or with those that could not join when they fetched last."""
        leadership = self._leadership
        if leadership is None or self.failure is not None:
            return
        leadership.is_refused, lag_ms_max = False, self._environment.lag_ms_max()
        staying = leadership.isr_without_laggards(self.log.log_end_offset, now_ms, lag_ms_max)
        if staying is not None:
            self._propose_isr(staying)
        else:
            self._propose_joining()

    def _propose_joining(self) -> None:
        joined = self._leadership.isr_with_joining(self.high_watermark) if self._leadership is not None else None
        if joined is not None:
            self._propose_isr(joined)

    def _propose_isr(self, isr: frozenset[int]) -> None:
        assert self._leadership is not None
        self._leadership.pending_isr = isr
        self._environment.propose_isr(self)

    def isr_change(self, *, confirms: bool) -> IsrChange | None:
        """The proposal; with `confirms` the ISR as it is known. None when there is none any more."""
        leadership = self._leadership
        if leadership is None or leadership.pending_isr is None:
            return None
        members = leadership.isr if confirms else leadership.pending_isr
        return IsrChange(
            self.topic_partition,
            self.topic_id,
            self._state.leader_epoch,
            self._state.partition_epoch,
            leadership.broker_epochs(members, self._environment.own_broker_epoch()),
        )

    def isr_change_refused(self, change: IsrChange) -> None:
        """Nothing of `change` was written, and it will not be."""
        if self._leadership is not None and self._state.partition_epoch == change.partition_epoch:
            self._leadership.refused()
            self._advance_high_watermark(monotonic_ms(self._environment.clock))
