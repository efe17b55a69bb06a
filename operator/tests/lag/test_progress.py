"""Burrow's rules over looks at one group in one partition: each story ends in the status that Burrow would give."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_lag.evaluation.progress import MOVES_KEPT, Progress, Status, next_look, status

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
        progress = next_look(progress, now_s, committed, max(0, end - committed))
        found.append(status(progress, now_s, PATIENCE_S, has_members=has_members))
    return found


STEADY = [(100 * n, 100 * n + (7 if n % 2 else 3)) for n in range(20)]


def test_a_group_that_keeps_up_is_ok_all_the_time() -> None:
    assert set(statuses(STEADY)) == {Status.OK}


def test_a_constant_lag_is_ok() -> None:
    assert set(statuses((100 * n, 100 * n + 5) for n in range(40))) == {Status.OK}


def test_a_group_that_falls_behind_is_warned_of_after_as_many_commits_as_burrow_looks_at() -> None:
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


def test_a_group_that_stops_after_it_kept_up_is_told_after_the_time_that_it_has_been_watched() -> None:
    looks = [*STEADY, *((1_900, 2_000 + 100 * n) for n in range(MOVES_KEPT + 1))]
    assert statuses(looks)[-1] == Status.STALL
    assert set(statuses(looks[:-2])) == {Status.OK}


def test_records_that_come_to_an_idle_group_are_no_stall_at_once() -> None:
    looks = [*[(50, 50)] * 200, (50, 60), (60, 60), (60, 70), (70, 70)]
    assert set(statuses(looks)) == {Status.OK}


def test_a_group_that_seldom_has_something_to_read_stalls_after_minutes_not_hours() -> None:
    seldom = [(number // 20, number // 20 + (number % 20 == 19)) for number in range(400)]
    found = statuses([*seldom, *[(20, 21)] * (MOVES_KEPT + 1)])
    assert set(found[:-1]) == {Status.OK}
    assert found[-1] == Status.STALL


def test_records_that_came_while_nobody_looked_are_no_stall_at_once() -> None:
    caught_up = next_look(None, 1_000.0, 50, 0)
    after_a_gap = next_look(caught_up, 2_000.0, 50, 3)
    assert status(after_a_gap, 2_000.0, PATIENCE_S, has_members=True) == Status.OK
    assert status(after_a_gap, 2_000.0 + PATIENCE_S + 1, PATIENCE_S, has_members=True) == Status.STALL


def test_a_group_that_goes_back_is_a_rewind_until_it_is_there_again() -> None:
    looks = [(500, 510), (600, 610), (100, 620), (200, 630), (400, 640), (620, 650)]
    assert statuses(looks) == [Status.OK, Status.OK, Status.REWIND, Status.REWIND, Status.REWIND, Status.OK]


def test_a_rewind_is_forgotten_when_burrow_sees_it_no_longer() -> None:
    looks = [(50_000, 50_010), (0, 50_020), *((100 * n, 50_020) for n in range(1, MOVES_KEPT + 1))]
    assert statuses(looks)[-1] == Status.OK
    assert statuses(looks)[-2] == Status.REWIND


def test_who_commits_seldom_does_not_stall_between_two_commits() -> None:
    looks = [(1_000 * (n // 10), 1_000 * (n // 10) + 500 + 10 * (n % 10)) for n in range(200)]
    found = statuses(looks)
    assert set(found[20:]) == {Status.OK}


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=60), st.booleans())
def test_without_lag_a_group_is_ok_and_a_status_is_always_one_of_burrows(looks: list[Look], has_members: bool) -> None:
    for (committed, end), found in zip(looks, statuses(looks, has_members=has_members), strict=True):
        assert found == Status.OK or committed < end
        assert (found == Status.STALL) <= has_members
        assert (found == Status.STOP) <= (not has_members)


def test_who_goes_back_by_a_declared_reset_does_not_rewind_and_who_goes_back_later_does() -> None:
    before = next_look(None, 1_000.0, 50, 0)
    after = next_look(before, 1_015.0, 10, 40, "2026-11-a")
    assert status(after, 1_015.0, PATIENCE_S, has_members=True) == Status.OK
    went_on = next_look(after, 1_030.0, 30, 20, "2026-11-a")
    back = next_look(went_on, 1_045.0, 5, 45, "2026-11-a")
    assert status(back, 1_045.0, PATIENCE_S, has_members=True) == Status.REWIND, "nobody has declared that"
    again = next_look(back, 1_060.0, 2, 48, "2026-12-a")
    assert status(again, 1_060.0, PATIENCE_S, has_members=True) == Status.OK


def test_a_reset_that_moves_nothing_in_a_partition_excuses_nobody_who_goes_back_later() -> None:
    before = next_look(None, 1_000.0, 50, 0)
    same = next_look(before, 1_015.0, 50, 0, "2026-11-a")
    back = next_look(same, 1_030.0, 10, 40, "2026-11-a")
    assert status(back, 1_030.0, PATIENCE_S, has_members=True) == Status.REWIND
