"""The state machine of a share partition: golden cases, and random steps beside a model of single records."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.coordinators.share_delivery.share_partition import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    AcknowledgementBatch,
    Acquired,
    FetchedBatch,
    Limits,
    ShareChange,
    SharePartition,
    Wish,
)
from barnabas_broker.coordinators.share_delivery.window import RecordState
from barnabas_broker.coordinators.share_state.share_state import StateBatch
from barnabas_core.errors import ApiError, ErrorCode

LIMITS = Limits(delivery_count=5, record_locks=200, lock_ms=30_000)
WITH_DEAD_LETTERS = LIMITS._replace(has_dead_letters=True)
ALL = Wish(500, 500, is_strict=False)


def empty() -> SharePartition:
    return SharePartition(0, (), 0)


def acquire(partition: SharePartition, first: int, last: int, member: str = "m", **given: Any) -> list[Acquired]:
    wish, limits = given.get("wish", ALL), given.get("limits", LIMITS)
    batches = given.get("batches", [FetchedBatch(first, last)])
    return partition.acquire(member, first, batches, wish, given.get("now_ms", 0), limits)


def acknowledge(
    partition: SharePartition, first: int, last: int, *types: int, member: str = "m", limits: Limits = LIMITS
) -> ShareChange:
    return partition.acknowledge(member, [AcknowledgementBatch(first, last, types)], 0, limits)


def states(partition: SharePartition) -> list[tuple[int, int, str, int]]:
    return [(each.first, each.last, each.state.name, each.delivery_count) for each in partition.window.ranges]


def test_five_hundred_records_of_one_batch_are_one_range() -> None:
    partition = empty()
    acquire(partition, 0, 499, limits=LIMITS._replace(record_locks=2000))
    assert states(partition) == [(0, 499, "ACQUIRED", 1)]


@pytest.mark.parametrize(
    ("types", "limits", "left", "start"),
    [
        ([ACCEPT], LIMITS, [], 10),
        ([REJECT], LIMITS, [], 10),
        ([GAP], LIMITS, [], 10),
        ([RELEASE], LIMITS, [(0, 9, "AVAILABLE", 1)], 0),
        ([RENEW], LIMITS, [(0, 9, "ACQUIRED", 1)], 0),
        ([REJECT], WITH_DEAD_LETTERS, [(0, 9, "ARCHIVING", 1)], 0),
        ([RELEASE], WITH_DEAD_LETTERS._replace(delivery_count=1), [(0, 9, "ARCHIVING", 1)], 0),
        ([RELEASE], LIMITS._replace(delivery_count=1), [], 10),
        ([ACCEPT] * 5 + [RELEASE] * 5, LIMITS, [(5, 9, "AVAILABLE", 1)], 5),
        ([RELEASE] + [ACCEPT] * 9, LIMITS, [(0, 0, "AVAILABLE", 1), (1, 9, "ACKNOWLEDGED", 1)], 0),
    ],
)
def test_an_acknowledgement_ends_a_delivery(types: list[int], limits: Limits, left: object, start: int) -> None:
    partition = empty()
    acquire(partition, 0, 9)
    change = acknowledge(partition, 0, 9, *types, limits=limits)
    partition.commit(change)
    assert (states(partition), partition.window.start) == (left, start)


def test_what_is_being_stored_is_neither_acquired_nor_acknowledged_again() -> None:
    partition = empty()
    acquire(partition, 0, 9)
    acknowledge(partition, 0, 9, RELEASE)
    assert partition.next_fetch_offset(LIMITS) == 10
    with pytest.raises(ApiError) as refusal:
        acknowledge(partition, 3, 3, ACCEPT)
    assert refusal.value.code is ErrorCode.INVALID_RECORD_STATE


def test_a_change_that_cannot_be_stored_is_taken_back() -> None:
    partition = empty()
    acquire(partition, 0, 9)
    partition.roll_back(acknowledge(partition, 2, 3, ACCEPT))
    assert states(partition) == [(0, 9, "ACQUIRED", 1)]


def test_a_lock_that_ends_while_a_change_is_stored_is_released_after_the_roll_back() -> None:
    partition = empty()
    acquire(partition, 0, 9)
    change = acknowledge(partition, 0, 9, ACCEPT)
    assert not partition.expire(30_000, LIMITS).batches
    partition.roll_back(change)
    assert partition.wake_ms == 30_000
    partition.expire(30_000, LIMITS)
    assert states(partition) == [(0, 9, "AVAILABLE", 1)]


@pytest.mark.parametrize(
    ("member", "first", "last", "why"),
    [
        ("other", 0, 9, "another member"),
        ("m", 5, 10, "were not all delivered"),
        ("m", 20, 20, "were not all delivered"),
    ],
)
def test_an_acknowledgement_of_records_without_a_lock_changes_nothing(
    member: str, first: int, last: int, why: str
) -> None:
    partition = empty()
    acquire(partition, 0, 9)
    with pytest.raises(ApiError, match=why):
        partition.acknowledge(
            member, [AcknowledgementBatch(0, 1, [ACCEPT]), AcknowledgementBatch(first, last, [ACCEPT])], 0, LIMITS
        )
    assert states(partition) == [(0, 9, "ACQUIRED", 1)]


def test_a_record_that_a_request_acknowledges_twice_is_refused() -> None:
    partition = empty()
    acquire(partition, 0, 9)
    twice = [AcknowledgementBatch(0, 5, [ACCEPT]), AcknowledgementBatch(5, 6, [RELEASE])]
    with pytest.raises(ApiError, match="twice"):
        partition.acknowledge("m", twice, 0, LIMITS)


def test_offsets_below_the_start_are_acknowledged_without_effect() -> None:
    partition = empty()
    acquire(partition, 0, 9)
    partition.commit(acknowledge(partition, 0, 4, ACCEPT))
    assert not acknowledge(partition, 0, 3, REJECT).batches
    assert acknowledge(partition, 2, 6, *[RELEASE] * 5).batches == [StateBatch(5, 6, 0, 1)]


def test_a_renewed_lock_ends_later() -> None:
    partition = empty()
    acquire(partition, 0, 9)
    partition.acknowledge("m", [AcknowledgementBatch(0, 4, [RENEW])], 10_000, LIMITS)
    partition.expire(30_000, LIMITS)
    assert states(partition) == [(0, 4, "ACQUIRED", 1), (5, 9, "AVAILABLE", 1)]
    assert partition.wake_ms == 40_000


def test_a_session_that_ends_releases_only_its_own_records() -> None:
    partition = empty()
    acquire(partition, 0, 4)
    acquire(partition, 5, 9, member="other")
    assert partition.release_all("m", LIMITS).batches == [StateBatch(0, 4, 0, 1)]
    assert states(partition) == [(0, 4, "AVAILABLE", 1), (5, 9, "ACQUIRED", 1)]


def test_one_stuck_record_at_the_start_holds_the_window() -> None:
    partition, limits = empty(), LIMITS._replace(record_locks=100)
    assert acquire(partition, 0, 149, limits=limits) == [(0, 99, 1)]
    partition.commit(acknowledge(partition, 1, 99, ACCEPT))
    assert partition.next_fetch_offset(limits) is None
    assert acquire(partition, 100, 149, limits=limits) == []
    partition.commit(acknowledge(partition, 0, 0, RELEASE))
    assert partition.next_fetch_offset(limits) == 0
    assert acquire(partition, 0, 149, limits=limits) == [(0, 0, 2)]
    partition.commit(acknowledge(partition, 0, 0, ACCEPT))
    assert partition.next_fetch_offset(limits) == 100


def test_the_mode_record_limit_acquires_no_more_than_asked() -> None:
    partition, strict = empty(), Wish(10, 500, is_strict=True)
    assert acquire(partition, 0, 99, wish=strict) == [(0, 9, 1)]
    assert acquire(partition, 0, 99, wish=strict._replace(is_strict=False)) == [(10, 99, 1)]


def test_acquired_ranges_end_where_a_batch_ends() -> None:
    batches = [FetchedBatch(0, 9), FetchedBatch(10, 19), FetchedBatch(20, 29)]
    assert acquire(empty(), 0, 29, batches=batches, wish=Wish(500, 15, is_strict=False)) == [(0, 19, 1), (20, 29, 1)]


def test_markers_aborted_batches_and_compacted_offsets_are_archived() -> None:
    partition = empty()
    batches = [FetchedBatch(5, 9), FetchedBatch(10, 10, is_delivered=False), FetchedBatch(15, 19)]
    assert acquire(partition, 0, 19, batches=batches) == [(5, 9, 1), (15, 19, 1)]
    assert states(partition) == [(5, 9, "ACQUIRED", 1), (10, 14, "ARCHIVED", 0), (15, 19, "ACQUIRED", 1)]
    assert partition.window.start == 5


def test_offsets_between_stored_ranges_are_acquired_before_new_ones() -> None:
    stored = [StateBatch(10, 14, 2, 1), StateBatch(20, 24, 0, 3), StateBatch(25, 25, 3, 5)]
    partition = SharePartition(5, stored, 0)
    assert states(partition) == [
        (5, 9, "AVAILABLE", 0),
        (10, 14, "ACKNOWLEDGED", 1),
        (15, 19, "AVAILABLE", 0),
        (20, 24, "AVAILABLE", 3),
        (25, 25, "ARCHIVING", 5),
    ]
    assert partition.next_fetch_offset(LIMITS) == 5
    assert acquire(partition, 5, 40, wish=Wish(8, 500, is_strict=True)) == [(5, 9, 1), (15, 17, 1)]
    assert partition.next_fetch_offset(LIMITS) == 18


def test_records_below_the_start_of_the_log_are_archived_but_for_those_that_wait_for_dead_letters() -> None:
    partition = SharePartition(0, [StateBatch(3, 3, 3, 5)], 0)
    acquire(partition, 0, 9)
    assert partition.move_start(8)
    assert states(partition) == [(3, 3, "ARCHIVING", 5), (4, 7, "ARCHIVED", 1), (8, 9, "ACQUIRED", 1)]
    partition.commit(partition.archive(3, 3))
    assert partition.window.start == 8
    assert partition.move_start(50)
    assert (partition.window.start, states(partition)) == (50, [])


def test_a_bad_record_is_isolated_step_by_step() -> None:
    """A batch of 16 fails as a whole until the records come one by one, and then only the bad one is archived."""
    partition, sizes = empty(), []
    offset: int | None = 0
    while (offset := partition.next_fetch_offset(LIMITS)) is not None and offset < 16:
        acquired = acquire(partition, offset, 15, batches=[FetchedBatch(0, 15)])
        sizes.append(sum(each.last - each.first + 1 for each in acquired))
        for each in acquired:
            is_bad = each.first <= 5 <= each.last
            partition.commit(acknowledge(partition, each.first, each.last, RELEASE if is_bad else ACCEPT))
    assert sizes[:4] == [16, 16, 16, 8]
    assert sizes.count(1) >= 4
    assert partition.window.start == 16


def test_a_lowered_limit_allows_one_more_delivery() -> None:
    partition = SharePartition(0, [StateBatch(0, 9, 0, 4)], 0)
    lowered = LIMITS._replace(delivery_count=2)
    assert acquire(partition, 0, 9, limits=lowered) == [(0, 9, 5)]
    partition.commit(acknowledge(partition, 0, 9, RELEASE, limits=lowered))
    assert partition.window.start == 10


class Beside(RuleBasedStateMachine):
    """Random steps of a share partition; `records` is the model, one entry for each offset."""

    def __init__(self) -> None:
        super().__init__()
        self.partition = empty()
        self.records: dict[int, tuple[str, int, str]] = {}
        self.now_ms = 0
        self.changes: list[ShareChange] = []
        self.counts: dict[int, int] = {}
        self.final: set[int] = set()
        self.start = 0
        self.limits = Limits(delivery_count=3, record_locks=24, lock_ms=100, has_dead_letters=True)

    @rule(member=st.sampled_from("ab"), span=st.integers(1, 9), most=st.integers(1, 8), strict=st.booleans())
    def acquires(self, member: str, span: int, most: int, strict: bool) -> None:
        offset = self.partition.next_fetch_offset(self.limits)
        if offset is None:
            return
        batches = [FetchedBatch(first, first + 2, first % 5 != 4) for first in range(offset, offset + span * 3, 4)]
        wish = Wish(most, 4, is_strict=strict)
        locked = self._locked()
        acquired = self.partition.acquire(member, offset, batches, wish, self.now_ms, self.limits)
        assert not strict or sum(last - first + 1 for first, last, _ in acquired) <= most
        for first, last, count in acquired:
            for each in range(first, last + 1):
                assert each not in locked
                assert each not in self.final
                assert count == self.counts.get(each, 0) + 1
                self.counts[each] = count

    def _locked(self) -> dict[int, str]:
        return {
            offset: each.member_id
            for each in self.partition.window.in_state(RecordState.ACQUIRED)
            for offset in range(each.first, each.last + 1)
        }

    @rule(member=st.sampled_from("ab"), first=st.integers(0, 30), types=st.lists(st.integers(0, 4), min_size=1))
    def acknowledges(self, member: str, first: int, types: list[int]) -> None:
        first += self.partition.window.start - 3
        before = states(self.partition)
        offsets = [each for each in range(first, first + len(types)) if each >= self.partition.window.start]
        locked, pending = self._locked(), self._pending()
        allowed = all(locked.get(each) == member and each not in pending for each in offsets)
        batch = AcknowledgementBatch(first, first + len(types) - 1, types)
        try:
            change = self.partition.acknowledge(member, [batch], self.now_ms, self.limits)
        except ApiError:
            assert not allowed
            assert states(self.partition) == before
        else:
            assert allowed
            self.changes.append(change)

    def _pending(self) -> set[int]:
        ranges = self.partition.window.ranges
        return {at for each in ranges if each.target is not None for at in range(each.first, each.last + 1)}

    @precondition(lambda self: self.changes)
    @rule(at=st.integers(0, 99), stored=st.booleans())
    def ends_a_change(self, at: int, stored: bool) -> None:
        change = self.changes.pop(at % len(self.changes))
        (self.partition.commit if stored else self.partition.roll_back)(change)

    @rule(passed_ms=st.integers(1, 80))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        if self.now_ms >= self.partition.wake_ms:
            self.partition.expire(self.now_ms, self.limits)

    @rule(member=st.sampled_from("ab"))
    def leaves(self, member: str) -> None:
        self.partition.release_all(member, self.limits)

    @rule()
    def writes_dead_letters(self) -> None:
        for each in list(self.partition.window.in_state(RecordState.ARCHIVING)):
            self.changes.append(self.partition.archive(each.first, each.last))

    @rule(by=st.integers(0, 4))
    def loses_the_start_of_the_log(self, by: int) -> None:
        self.partition.move_start(self.partition.window.start + by)

    @rule()
    def fails_over(self) -> None:
        """Load what a new leader would read, if all was stored."""
        if self.changes:
            return
        window = self.partition.window
        stored = [
            StateBatch(each.first, each.last, 0 if each.state is RecordState.ACQUIRED else each.state, count)
            for each in window.ranges
            for count in [each.delivery_count - (each.state is RecordState.ACQUIRED)]
        ]
        for offset in self._locked():
            self.counts[offset] -= 1
        self.partition = SharePartition(window.start, stored, self.now_ms)

    @invariant()
    def holds(self) -> None:
        window = self.partition.window
        position = window.start
        for each in window.ranges:
            assert each.first == position <= each.last
            position = each.last + 1
        assert len(window) <= self.limits.record_locks + 4
        assert window.start >= self.start
        assert not window.ranges or not window.ranges[0].is_settled
        self.start = window.start
        final = {
            at
            for each in window.ranges
            if each.state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)
            for at in range(each.first, each.last + 1)
        }
        assert {at for at in self.final if at >= window.start} <= final
        self.final = final
        deadlines = [e.deadline_ms for e in window.in_state(RecordState.ACQUIRED) if e.target is None]
        assert self.partition.wake_ms <= min(deadlines, default=self.partition.wake_ms)


TestRandomSteps = Beside.TestCase
