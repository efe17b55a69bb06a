"""The leader's knowledge of its followers, from which the leader computes the high watermark and the ISR.

The high watermark depends on the maximal ISR: the ISR, and the replicas that a pending change would add to it. Every
replica that may be elected therefore has all acknowledged records. The rules are Kafka's, with KIP-903 (only the
registered incarnation of a broker may join) and KIP-966 (the high watermark stops while fewer than
`min.insync.replicas` are in sync).
"""

from collections.abc import Callable, Container, Iterable
from typing import Final

from barnabas_broker.metadata.model import PartitionState

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
        self.isr: frozenset[int] = frozenset(state.isr)
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
        self.isr = frozenset(state.isr)
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
