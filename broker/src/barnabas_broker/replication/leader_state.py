"""The leader's view of its followers, from which it computes the high watermark and the in-sync replicas. Pure.

The high watermark counts the maximal ISR, which includes a pending change: so no replica that could be elected lacks an
acknowledged record. The rules are Kafka's with KIP-903 (only the registered incarnation of a broker joins) and KIP-966
(the high watermark stops while fewer than `min.insync.replicas` are in sync).
"""

from collections.abc import Callable, Container, Iterable
from typing import Final

from barnabas_broker.metadata.model import PartitionState

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(2**62)
UNKNOWN_BROKER_EPOCH: Final = -1

IsEligible = Callable[[int, int], bool]
"""A function of broker id and broker epoch; True if this incarnation is registered, alive and may join an ISR."""


class FollowerProgress:
    """A follower's progress, as its fetches show it. Times are in ms of the monotonic clock."""

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
        """The last time at which it had all of the leader's log."""
        self.fetched_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.left_at = UNKNOWN_OFFSET
        """The end of its log when it was found to lag; it may join the ISR again once its log end is beyond."""

    def fetched(
        self, broker_epoch: int, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Record a fetch from `fetch_offset`: all records below it are on the follower's disk."""
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
        """Return True if it has all of the leader's log, or had it within the last `lag_ms_max`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


class LeaderState:
    """The state of one leader epoch of a partition on broker `leader_id`. Times are in ms of the monotonic clock."""

    __slots__ = ("_is_eligible", "epoch_start_offset", "followers", "is_refused", "isr", "leader_id", "pending_isr")

    def __init__(
        self, leader_id: int, state: PartitionState, log_end_offset: int, now_ms: int, is_eligible: IsEligible
    ) -> None:
        self.leader_id = leader_id
        self.epoch_start_offset = log_end_offset
        """The log end offset at which this epoch began."""
        self.isr: frozenset[int] = frozenset(state.isr)
        self.pending_isr: frozenset[int] | None = None
        """The proposed ISR, or None; it may have been written."""
        self.is_refused = False
        """True if the last proposal was refused: fetches propose no other until the metadata changes or `check_isr`."""
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
        """Take over a newer state of this epoch; no earlier proposal can be written after it."""
        self.isr = frozenset(state.isr)
        self.pending_isr, self.is_refused = None, False
        self._take_replicas(state.replicas, now_ms)

    def refused(self) -> None:
        """Drop the pending proposal: it was not written."""
        self.pending_isr, self.is_refused = None, True

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The ISR with the members of a pending proposal."""
        return self.isr if self.pending_isr is None else self.isr | self.pending_isr

    def appended(self, previous_end_offset: int, now_ms: int) -> None:
        """Start the lag time of the followers that had all of the log before this append."""
        for follower in self.followers.values():
            if follower.log_end_offset == previous_end_offset:
                follower.caught_up_ms = now_ms

    def high_watermark(self, log_end_offset: int, isr_size_min: int, now_ms: int, lag_ms_max: int) -> int:
        """Return the high watermark, or UNKNOWN_OFFSET while fewer than `isr_size_min` are in sync.

        A caught-up replica that may join counts too: it could never join if the high watermark ran ahead of it.
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
        """Return the lowest log start offset of this leader and its live followers (UNKNOWN_OFFSET before a fetch)."""
        starts = [each.log_start_offset for broker_id, each in self.followers.items() if broker_id in live]
        return min([log_start_offset, *starts])

    def isr_with_joining(self, high_watermark: int) -> frozenset[int] | None:
        """Return the ISR with all that may join: alive, with the log up to the high watermark and the epoch's start.

        The high watermark stops while the ISR is too small, so a replica that lagged must also have advanced since.
        None if no replica may join, a proposal is pending, or the last one was refused.
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
        """Return the ISR without replicas that lag too long; None if none does or a proposal is pending."""
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

    def broker_epochs(self, members: Iterable[int], own_broker_epoch: int) -> dict[int, int]:
        """Return the broker epoch with which each member of an ISR last fetched, and the leader's own (KIP-903)."""
        return {
            each: own_broker_epoch if each == self.leader_id else self.followers[each].broker_epoch
            for each in sorted(members)
        }
