"""Burrow's rules for one group in one partition: each series of looks has the status that Burrow would give."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_lag.evaluation.lags import MOVES_KEPT, Progress, Status, next_progress, status

EVERY_S = 30.0
PATIENCE_S = 60.0
Look = tuple[int, int]
"""The committed offset and the end of the log."""


def statuses(looks: Iterable[Look], *, has_members: bool = True) -> list[Status]:
    """The status after each look."""
    found: list[Status] = []
    progress: Progress | None = None
    for number, (committed, end) in enumerate(looks):
        now_s = 1_000_000.0 + number * EVERY_S
        progress = next_progress(progress, now_s, committed, max(0, end - committed))
        found.append(status(progress, now_s, PATIENCE_S, has_members=has_members))
    return found


STEADY = [(100 * n, 100 * n + (7 if n % 2 else 3)) for n in range(20)]


def test_a_group_that_keeps_up_is_ok_all_the_time() -> None:
    assert set(statuses(STEADY)) == {Status.OK}


def test_a_constant_lag_is_ok() -> None:
    assert set(statuses((100 * n, 100 * n + 5) for n in range(40))) == {Status.OK}


def test_a_group_that_falls_behind_gets_a_warning_after_burrows_number_of_commits() -> None:
    found = statuses((100 * n, 100 * n + 5 + 10 * n) for n in range(20))
    assert found == [Status.OK] * (MOVES_KEPT - 1) + [Status.WARN] * (20 - MOVES_KEPT + 1)


def test_a_group_that_catches_up_is_ok_though_it_is_behind() -> None:
    assert set(statuses((200 * n, 100 * n + 5_000) for n in range(20))) == {Status.OK}


@pytest.mark.parametrize(("has_members", "expected"), [(True, Status.STALL), (False, Status.STOP)])
def test_an_offset_that_does_not_move_is_a_stall_with_members_and_a_stop_without(
    has_members: bool, expected: Status
) -> None:
    stuck = [(0, 100 + 10 * n) for n in range(6)]
    assert statuses(stuck, has_members=has_members) == [Status.OK] * 3 + [expected] * 3


def test_a_group_that_stops_after_keeping_up_stalls_only_after_several_looks() -> None:
    looks = [*STEADY, *((1_900, 2_000 + 100 * n) for n in range(MOVES_KEPT + 1))]
    assert statuses(looks)[-1] == Status.STALL
    assert set(statuses(looks[:-2])) == {Status.OK}


def test_an_idle_group_does_not_stall_at_once_when_records_arrive() -> None:
    looks = [*[(50, 50)] * 200, (50, 60), (60, 60), (60, 70), (70, 70)]
    assert set(statuses(looks)) == {Status.OK}


def test_a_group_that_seldom_has_something_to_read_stalls_after_minutes_not_hours() -> None:
    seldom = [(number // 20, number // 20 + (number % 20 == 19)) for number in range(400)]
    found = statuses([*seldom, *[(20, 21)] * (MOVES_KEPT + 1)])
    assert set(found[:-1]) == {Status.OK}
    assert found[-1] == Status.STALL


def test_a_group_does_not_stall_at_once_by_records_from_a_gap_between_looks() -> None:
    caught_up = next_progress(None, 1_000.0, 50, 0)
    after_a_gap = next_progress(caught_up, 2_000.0, 50, 3)
    assert status(after_a_gap, 2_000.0, PATIENCE_S, has_members=True) == Status.OK
    assert status(after_a_gap, 2_000.0 + PATIENCE_S + 1, PATIENCE_S, has_members=True) == Status.STALL


def test_a_rewind_lasts_until_the_group_reaches_its_former_offset() -> None:
    looks = [(500, 510), (600, 610), (100, 620), (200, 630), (400, 640), (620, 650)]
    assert statuses(looks) == [Status.OK, Status.OK, Status.REWIND, Status.REWIND, Status.REWIND, Status.OK]


def test_a_rewind_ends_when_it_leaves_burrows_window() -> None:
    looks = [(50_000, 50_010), (0, 50_020), *((100 * n, 50_020) for n in range(1, MOVES_KEPT + 1))]
    assert statuses(looks)[-1] == Status.OK
    assert statuses(looks)[-2] == Status.REWIND


def test_a_group_that_commits_seldom_does_not_stall_between_two_commits() -> None:
    looks = [(1_000 * (n // 10), 1_000 * (n // 10) + 500 + 10 * (n % 10)) for n in range(200)]
    found = statuses(looks)
    assert set(found[20:]) == {Status.OK}


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=60), st.booleans())
def test_a_group_without_lag_is_ok_and_only_one_with_members_stalls(looks: list[Look], has_members: bool) -> None:
    for (committed, end), found in zip(looks, statuses(looks, has_members=has_members), strict=True):
        assert found == Status.OK or committed < end
        assert (found == Status.STALL) <= has_members
        assert (found == Status.STOP) <= (not has_members)


def test_a_declared_reset_is_no_rewind_but_a_later_step_back_is() -> None:
    before = next_progress(None, 1_000.0, 50, 0)
    after = next_progress(before, 1_015.0, 10, 40, "2026-11-a")
    assert status(after, 1_015.0, PATIENCE_S, has_members=True) == Status.OK
    went_on = next_progress(after, 1_030.0, 30, 20, "2026-11-a")
    back = next_progress(went_on, 1_045.0, 5, 45, "2026-11-a")
    assert status(back, 1_045.0, PATIENCE_S, has_members=True) == Status.REWIND, "no declared reset explains it"
    again = next_progress(back, 1_060.0, 2, 48, "2026-12-a")
    assert status(again, 1_060.0, PATIENCE_S, has_members=True) == Status.OK


def test_a_reset_that_moves_no_offset_does_not_excuse_a_later_rewind() -> None:
    before = next_progress(None, 1_000.0, 50, 0)
    same = next_progress(before, 1_015.0, 50, 0, "2026-11-a")
    back = next_progress(same, 1_030.0, 10, 40, "2026-11-a")
    assert status(back, 1_030.0, PATIENCE_S, has_members=True) == Status.REWIND
