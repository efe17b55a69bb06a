"""What a leader knows of its followers, and what follows from that: the high watermark and the in-sync replicas. Pure.

Whoever may be in the ISR by now counts, the pending change included (the maximal ISR): so no replica that could be
elected lacks what was acknowledged. Kafka's rules with those of KIP-903 (only this incarnation of a broker) and KIP-966
(no high watermark while fewer than `min.insync.replicas` are in sync).
"""

from collections.abc import Callable, Container, Iterable
from typing import Final

from barnabas_broker.metadata.model import PartitionState

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(2**62)
UNKNOWN_BROKER_EPOCH: Final = -1

IsEligible = Callable[[int, int], bool]
"""Whether a broker id with this broker epoch may join an ISR: it is alive, and it is this incarnation of it."""


class FollowerProgress:
    """How far one follower is, as its fetches tell."""

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
        """When it last had all that the leader had."""
        self.fetched_ms = NEVER_MS
        self.leader_end_at_fetch = UNKNOWN_OFFSET
        self.left_at = UNKNOWN_OFFSET
        """The end of its log when it was found to lag: it joins again once it has got on."""

    def fetched(
        self, broker_epoch: int, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """A fetch from `fetch_offset` on: everything below is on the follower's disk."""
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
        """It has all, or had all not longer ago than `replica.lag.time.max.ms`."""
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


class LeaderState:
    """One leader epoch of one partition on the broker `leader_id`. Times are those of the clock that nobody sets."""

    __slots__ = ("_is_eligible", "epoch_start_offset", "followers", "is_refused", "isr", "leader_id", "pending_isr")

    def __init__(
        self, leader_id: int, state: PartitionState, log_end_offset: int, now_ms: int, is_eligible: IsEligible
    ) -> None:
        self.leader_id = leader_id
        self.epoch_start_offset = log_end_offset
        """Where the records of this epoch begin."""
        self.isr: frozenset[int] = frozenset(state.isr)
        self.pending_isr: frozenset[int] | None = None
        """Proposed, and not known to be refused."""
        self.is_refused = False
        """The last proposal was: fetches bring no other before the metadata has changed, or all is looked at anew."""
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
        """The metadata has a newer state of this epoch: no earlier proposal can come true any more."""
        self.isr = frozenset(state.isr)
        self.pending_isr, self.is_refused = None, False
        self._take_replicas(state.replicas, now_ms)

    def refused(self) -> None:
        """The proposal was: nothing of it is written."""
        self.pending_isr, self.is_refused = None, True

    @property
    def maximal_isr(self) -> frozenset[int]:
        """All that are in the ISR, or may be by now."""
        return self.isr if self.pending_isr is None else self.isr | self.pending_isr

    def appended(self, previous_end_offset: int, now_ms: int) -> None:
        """Who had everything until this append was caught up until now; its time begins to run."""
        for follower in self.followers.values():
            if follower.log_end_offset == previous_end_offset:
                follower.caught_up_ms = now_ms

    def high_watermark(self, log_end_offset: int, isr_size_min: int, now_ms: int, lag_ms_max: int) -> int:
        """The end of what is committed, UNKNOWN_OFFSET when that cannot be said.

        Who is about to join counts too: it would never get there if the high watermark ran ahead of it.
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
        """Where the records begin that are still on a broker that is alive: nothing before comes back with a leader."""
        starts = [each.log_start_offset for broker_id, each in self.followers.items() if broker_id in live]
        return min([log_start_offset, *starts])

    def isr_with_joining(self, high_watermark: int) -> frozenset[int] | None:
        """The ISR to propose with all who may join: alive, and with everything up to the high watermark and the epoch.

        The high watermark stands still while the ISR is too small, so who was found to lag has to have got on, too.
        None when nobody may, or a change is on its way.
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
        """The ISR to propose when somebody has not been caught up for too long; None when nobody has to leave."""
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
        """The broker epoch that each member of an ISR last fetched with."""
        return {
            each: own_broker_epoch if each == self.leader_id else self.followers[each].broker_epoch
            for each in sorted(members)
        }
