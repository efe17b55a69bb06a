"""The leader's knowledge of its followers, the follower's side of a replica, and delayed operations.

The high watermark depends on the maximal ISR: the ISR, and the replicas that a pending change would add to it. Every
replica that may be elected therefore has all acknowledged records. The rules are Kafka's, with KIP-903 (only the
registered incarnation of a broker may join) and KIP-966 (the high watermark stops while fewer than
`min.insync.replicas` are in sync).

The ISRs that leaders propose are written to the metadata in batches. An urgent proposal, such as the removal of a
replica that holds up the high watermark, is written immediately, one write at a time. An addition to an ISR that
already suffices for acks=all waits `JOINS_TOGETHER_S`, so that a returning broker causes few writes of each topic.
Urgent proposals and additions do not wait for each other. A partition sees in the metadata image that its proposal was
written; `isr_change_refused` is called if the proposal was refused. If the outcome of a write is unknown, the current
ISR is written once more, so that the proposal can no longer take effect.

A follower appends fetched batches, and truncates its log where the log diverges from the leader's (KIP-101, KIP-279,
KIP-595).

The purgatory has a Fetch that waits for more bytes, and a DeleteRecords that waits until followers delete, too. When a
partition changes, the operations in its wait list are tried again in the next turn of the event loop. A Produce that
waits for replicas is not delayed here, but in the partition's `commit_queue`.
"""

import logging
from collections.abc import Awaitable, Callable, Container, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import msgspec

from barnabas_broker.metadata.controller.decisions.fencing import IsrChange
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.truncation import append_as_follower, truncate_fully_and_start_at, truncate_to
from barnabas_core.clock import Cancellable, Clock, Timers
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(2**62)
UNKNOWN_BROKER_EPOCH: Final = -1

IsEligible = Callable[[int, int], bool]
"""A function that takes a broker id and a broker epoch; True if the broker with this id and epoch may join an ISR."""


class FollowerProgress:
    """The progress of a follower, as shown by its fetches. All times are in ms of the monotonic clock."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "leader_end_at_fetch",
        "left_at",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, caught_up_ms: int) -> None:
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = caught_up_ms
        """The last time at which the follower had all records of the leader."""
        self.fetched_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.left_at = UNKNOWN_OFFSET
        """The follower's log end offset when it was found to lag; it may rejoin the ISR once its log end is higher."""

    def fetched(
        self, broker_epoch: int, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a fetch, which confirms that all records below `fetch_offset` are on the follower's disk."""
        if fetch_offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_at_fetch:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.broker_epoch = broker_epoch
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_fetch = leader_end_offset
        self.fetched_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """True if the follower has all records of the leader, or had them within the last `lag_ms_max`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


@lru_cache
def _members(isr: tuple[int, ...]) -> frozenset[int]:
    """Return the members of an ISR. Partitions with the same ISR share the set, which takes 216 bytes or more."""
    return frozenset(isr)


class LeaderReplica:
    """The state of a partition's leader in one leader epoch. All times are in ms of the monotonic clock."""

    __slots__ = (
        "_is_eligible",
        "epoch_start_offset",
        "followers",
        "is_refused",
        "isr",
        "leader_epoch",
        "leader_id",
        "pending_isr",
    )

    def __init__(
        self, leader_id: int, state: PartitionState, log_end_offset: int, now_ms: int, is_eligible: IsEligible
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = state.leader_epoch
        self.epoch_start_offset = log_end_offset
        """The log end offset at which the leader epoch began."""
        self.isr = _members(state.isr)
        self.pending_isr: frozenset[int] | None = None
        """The proposed ISR, which the metadata may already have; None if no proposal is pending."""
        self.is_refused = False
        """True if the last proposed ISR was refused.

        No replica may join the ISR then, until new metadata arrives or the lags are checked.
        """
        self.followers: dict[int, FollowerProgress] = {}
        self._is_eligible = is_eligible
        self._take_replicas(state.replicas, now_ms)

    def _take_replicas(self, replicas: Iterable[int], now_ms: int) -> None:
        self.followers = {
            each: self.followers.get(each) or FollowerProgress(now_ms if each in self.isr else NEVER_MS)
            for each in replicas
            if each != self.leader_id
        }

    def committed(self, state: PartitionState, now_ms: int) -> None:
        """Apply newer metadata of the same leader epoch.

        Drop the pending ISR: either the newer metadata has it, or it was based on older metadata and will be refused.
        """
        self.isr = _members(state.isr)
        self.pending_isr, self.is_refused = None, False
        self._take_replicas(state.replicas, now_ms)

    def refused(self) -> None:
        """Drop the pending ISR, because it was refused and will not be written to the metadata."""
        self.pending_isr, self.is_refused = None, True

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The ISR, together with the members of the pending ISR, if there is one."""
        return self.isr if self.pending_isr is None else self.isr | self.pending_isr

    def appended(self, previous_end_offset: int, now_ms: int) -> None:
        """Set `caught_up_ms` to now for all followers that had all records before this append."""
        for follower in self.followers.values():
            if follower.log_end_offset == previous_end_offset:
                follower.caught_up_ms = now_ms

    def high_watermark(self, log_end_offset: int, isr_size_min: int, now_ms: int, lag_ms_max: int) -> int:
        """Return the high watermark, or UNKNOWN_OFFSET while fewer than `isr_size_min` replicas are in sync.

        The high watermark also waits for a caught-up replica that may join the ISR. Otherwise each append could move
        the high watermark ahead of the replica, and the replica would never join.
        """
        if len(self.isr) < isr_size_min:
            return UNKNOWN_OFFSET
        maximal_isr = self.maximal_isr
        end_offset = log_end_offset
        for broker_id, follower in self.followers.items():
            if follower.log_end_offset < end_offset and (
                broker_id in maximal_isr
                or (
                    follower.is_caught_up(log_end_offset, now_ms, lag_ms_max)
                    and self._is_eligible(broker_id, follower.broker_epoch)
                )
            ):
                end_offset = follower.log_end_offset
        return end_offset

    def low_watermark(self, log_start_offset: int, live: Container[int]) -> int:
        """Return the lowest log start offset of the leader and its live followers.

        Return UNKNOWN_OFFSET if a live follower has not fetched yet.
        """
        starts = [each.log_start_offset for broker_id, each in self.followers.items() if broker_id in live]
        return min([log_start_offset, *starts])

    def isr_with_joining(self, high_watermark: int) -> frozenset[int] | None:
        """Return the ISR with all replicas that may join it, or None if no replica may join.

        A replica may join if its incarnation is eligible, and its log reaches the high watermark and the start of the
        leader epoch. A replica that was found to lag must also have fetched records since then: while the ISR is too
        small, the high watermark does not advance, so that even a lagging replica reaches the high watermark. No
        replica may join while a proposal is pending, or after a proposal was refused.
        """
        if self.pending_isr is not None or self.is_refused or len(self.isr) > len(self.followers):
            return None
        needed = max(high_watermark, self.epoch_start_offset)
        joining = {
            broker_id
            for broker_id, follower in self.followers.items()
            if follower.log_end_offset >= needed
            and follower.log_end_offset > follower.left_at
            and broker_id not in self.isr
            and self._is_eligible(broker_id, follower.broker_epoch)
        }
        return self.isr | joining if joining else None

    def isr_without_laggards(self, log_end_offset: int, now_ms: int, lag_ms_max: int) -> frozenset[int] | None:
        """Return the ISR without the replicas that lag too long, or None if no replica lags or a proposal is pending.

        After a refused proposal, no replica may join the ISR until this method is called.
        """
        self.is_refused = False
        if self.pending_isr is not None:
            return None
        staying = {
            each
            for each in self.isr
            if each == self.leader_id
            or (each in self.followers and self.followers[each].is_caught_up(log_end_offset, now_ms, lag_ms_max))
        }
        for each in self.isr & self.followers.keys() - staying:
            self.followers[each].left_at = self.followers[each].log_end_offset
        return None if staying == self.isr else frozenset(staying)

    def propose(self, isr: frozenset[int]) -> None:
        """Set the pending ISR, whose new members hold back the high watermark from now on."""
        self.pending_isr = isr

    def proposal(self, own_broker_epoch: int, *, confirms: bool) -> dict[int, int] | None:
        """Return the pending ISR or, if `confirms` is True, the ISR in the metadata.

        Return None in both cases if no ISR is pending. The result maps the broker id of each member to a broker epoch
        (KIP-903). The epoch of a follower is the one in its last Fetch request.
        """
        if self.pending_isr is None:
            return None
        members = self.isr if confirms else self.pending_isr
        return {
            each: own_broker_epoch if each == self.leader_id else self.followers[each].broker_epoch
            for each in sorted(members)
        }


log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
JOINS_TOGETHER_S: Final = 0.3
"""The time in seconds for which additions to ISRs are collected into one write."""
JOINS_MAX: Final = 500
"""The maximum number of partitions for which one write adds replicas to the ISR."""

ChangeIsr = Callable[[Sequence[IsrChange]], Awaitable[Mapping[TopicPartition, PartitionState | ApiError]]]


class IsrProposer(Protocol):
    """A partition that this broker leads, and that proposes changes of its ISR."""

    topic_partition: TopicPartition

    @property
    def isr_size(self) -> int:
        """The number of in-sync replicas."""
        ...

    @property
    def isr_size_min(self) -> int:
        """The number of in-sync replicas that are required for records to be committed."""
        ...

    def isr_change(self, *, confirms: bool) -> IsrChange | None:
        """Return the ISR to write to the metadata, or None if no proposal is pending.

        The result is the proposed ISR. With `confirms=True` it is the current ISR, whose write shows whether an earlier
        write of the proposed ISR has succeeded.
        """
        ...

    def isr_change_refused(self, change: IsrChange) -> None:
        """Drop the pending ISR, because it was refused and will not be written to the metadata."""
        ...


class IsrChanges:
    """The queue of proposals, which `change_isr` writes to the metadata."""

    def __init__(
        self,
        change_isr: ChangeIsr,
        timers: Timers,
        sleep: Callable[[float], Awaitable[None]],
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._change_isr = change_isr
        self._timers = timers
        self._sleep = sleep
        self._spawn = spawn
        self._urgent: dict[TopicPartition, IsrProposer] = {}
        self._joining: dict[TopicPartition, IsrProposer] = {}
        self._writes_urgent = False
        self._writes_joins = False
        self._waits_for_joins = False
        self.failed_total = 0
        """The number of times that the write of an ISR was refused or had an unknown outcome."""

    def propose(self, proposer: IsrProposer) -> None:
        """Queue a proposal, to be written in the next turn of the event loop, or later if it is not urgent."""
        which = proposer.topic_partition
        if _may_wait(proposer) and which not in self._urgent:
            self._joining[which] = proposer
            if not self._waits_for_joins:
                self._waits_for_joins = True
                self._timers.call_later(JOINS_TOGETHER_S, self._joins_are_due)
            return
        self._joining.pop(which, None)
        if not self._urgent:
            self._timers.call_soon(self._begin)
        self._urgent[which] = proposer

    def _joins_are_due(self) -> None:
        self._waits_for_joins = False
        self._begin()

    def _begin(self) -> None:
        if self._urgent and not self._writes_urgent:
            self._writes_urgent = True
            self._spawn(self._write_urgent())
        if self._joining and not self._waits_for_joins and not self._writes_joins:
            self._writes_joins = True
            self._spawn(self._write_joins())

    async def _write_urgent(self) -> None:
        try:
            while self._urgent:
                taken, self._urgent = self._urgent, {}
                await self._write(taken)
        finally:
            self._writes_urgent = False

    async def _write_joins(self) -> None:
        try:
            while self._joining and not self._waits_for_joins:
                await self._write({each: self._joining.pop(each) for each in sorted(self._joining)[:JOINS_MAX]})
        finally:
            self._writes_joins = False

    async def _write(self, taken: Mapping[TopicPartition, IsrProposer]) -> None:
        unknown = await self._attempt(taken, confirms=False)
        if unknown:
            self._spawn(self._confirm(unknown))

    async def _confirm(self, unknown: Mapping[TopicPartition, IsrProposer]) -> None:
        while unknown:
            await self._sleep(RETRY_S)
            unknown = await self._attempt(unknown, confirms=True)

    async def _attempt(
        self, proposers: Mapping[TopicPartition, IsrProposer], *, confirms: bool
    ) -> dict[TopicPartition, IsrProposer]:
        """Write the proposed ISRs, or with `confirms=True` the current ISRs once more.

        Return the partitions for which the outcome of the write is unknown.
        """
        made = {each: proposers[each].isr_change(confirms=confirms) for each in proposers}
        changes = {each: change for each, change in made.items() if change is not None}
        if not changes:
            return {}
        outcomes = await self._change_isr(list(changes.values()))
        unknown: dict[TopicPartition, IsrProposer] = {}
        for topic_partition, outcome in outcomes.items():
            if not isinstance(outcome, ApiError):
                continue
            self.failed_total += 1
            if confirms or outcome.code is ErrorCode.REQUEST_TIMED_OUT:
                unknown[topic_partition] = proposers[topic_partition]
                continue
            log.info("the ISR of %s was not changed: %s", topic_partition, outcome)
            proposers[topic_partition].isr_change_refused(changes[topic_partition])
        return unknown


def _may_wait(proposer: IsrProposer) -> bool:
    """True if the proposal adds a replica to an ISR that already suffices for acks=all."""
    change = proposer.isr_change(confirms=False)
    return change is not None and len(change.isr) > proposer.isr_size >= proposer.isr_size_min


class FetchPosition(NamedTuple):
    """The position in a partition that a follower sends in its next Fetch request."""

    offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


def is_ahead(log: Log, state: PartitionState) -> bool:
    """True if a log has a later leader epoch than the metadata. The metadata may then be a restored older copy."""
    return log.epochs.latest_epoch > state.leader_epoch >= 0


class PartitionEnvironment(msgspec.Struct, frozen=True):
    """The objects and functions that all partitions of a broker share.

    The function `lag_ms_max` returns the value of `replica.lag.time.max.ms`.
    """

    broker_id: int
    clock: Clock
    is_eligible: IsEligible
    lag_ms_max: Callable[[], int]
    propose_isr: Callable[[IsrProposer], object]
    own_broker_epoch: Callable[[], int]
    turned_away: Callable[[], object]
    """Record that a request was refused now: its leader epoch is wrong, or another broker leads the partition."""


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


class DelayedOperation(Protocol):
    """A request that waits for a change of a partition, or for its timeout."""

    def try_complete(self, changed: "WaitList") -> bool:
        """Try to answer the request after a change of a partition; return True if the request was answered."""
        ...

    def expire(self) -> None:
        """Answer the request with the results so far, because the request's timeout has passed."""
        ...


class WaitList:
    """The operations that wait for a change of one partition."""

    __slots__ = ("_purgatory", "is_marked", "waiting")

    def __init__(self, purgatory: "Purgatory") -> None:
        self._purgatory = purgatory
        self.waiting: dict[_Waiting, None] = {}
        """The operations, in the order of their arrival."""
        self.is_marked = False

    def mark(self) -> None:
        """Schedule another try of the waiting operations in the next turn of the event loop."""
        if self.waiting and not self.is_marked:
            self.is_marked = True
            self._purgatory.schedule(self)

    def add(self, waiting: "_Waiting") -> None:
        """Add an operation, which is tried again after each change of the partition."""
        self.waiting[waiting] = None

    def remove(self, waiting: "_Waiting") -> None:
        """Remove an operation that no longer waits for the partition."""
        self.waiting.pop(waiting, None)


class _Waiting:
    """A waiting operation with its wait lists and its deadline."""

    __slots__ = ("lists", "operation", "timer")

    def __init__(self, operation: DelayedOperation, lists: tuple[WaitList, ...]) -> None:
        self.operation = operation
        self.lists = lists
        self.timer: Cancellable | None = None

    def leave(self) -> None:
        for wait_list in self.lists:
            wait_list.remove(self)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def expire(self) -> None:
        self.timer = None
        self.leave()
        self.operation.expire()


class Purgatory:
    """The delayed operations of a broker."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._marked: list[WaitList] = []

    def wait_list(self) -> WaitList:
        """Return a new wait list for one partition."""
        return WaitList(self)

    def watch(self, operation: DelayedOperation, lists: Iterable[WaitList], timeout_s: float) -> Callable[[], None]:
        """Try to complete an operation after each change of its partitions; call `expire` after `timeout_s` seconds.

        Returns a function that ends the wait without a response.
        """
        waiting = _Waiting(operation, tuple(lists))
        for wait_list in waiting.lists:
            wait_list.add(waiting)
        waiting.timer = self._timers.call_later(timeout_s, waiting.expire)
        return waiting.leave

    def schedule(self, wait_list: WaitList) -> None:
        """Schedule another try of the operations that wait for a changed partition."""
        if not self._marked:
            self._timers.call_soon(self._try_marked)
        self._marked.append(wait_list)

    def _try_marked(self) -> None:
        marked, self._marked = self._marked, []
        for wait_list in marked:
            wait_list.is_marked = False
            for waiting in list(wait_list.waiting):
                if waiting.timer is not None and waiting.operation.try_complete(wait_list):
                    waiting.leave()
