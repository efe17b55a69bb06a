"""The right to write depends on the lease and on a clock that the test moves."""

import pytest

from barnabas_operator.leader_election import ALONE, DURATION_S, Leadership, NotLeading
from harness.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def leadership(clock: ManualClock) -> Leadership:
    """Return a leadership whose lease was just renewed."""
    held = Leadership(clock.monotonic_s)
    held.renewed(clock.monotonic_s())
    return held


def may_write(leadership: Leadership, needs_s: float = 0.0) -> bool:
    try:
        with leadership.writing(needs_s):
            return True
    except NotLeading:
        return False


def test_an_operator_does_not_write_before_it_holds_the_lease(clock: ManualClock) -> None:
    assert not Leadership(clock.monotonic_s).is_held
    assert not may_write(Leadership(clock.monotonic_s))


def test_an_operator_that_cannot_renew_stops_writing_before_its_lease_expires(
    leadership: Leadership, clock: ManualClock
) -> None:
    assert may_write(leadership)
    clock.pass_time(9.9)
    assert may_write(leadership)
    with leadership.writing() as seconds_max:
        assert seconds_max == pytest.approx(DURATION_S - 9.9)
    clock.pass_time(0.1)
    assert not may_write(leadership)
    leadership.renewed(clock.monotonic_s())
    assert may_write(leadership)


def test_a_request_that_may_outlive_the_lease_is_not_started(leadership: Leadership, clock: ManualClock) -> None:
    clock.pass_time(DURATION_S - 10.0)
    assert may_write(leadership, needs_s=10.0)
    clock.pass_time(0.1)
    assert not may_write(leadership, needs_s=10.0)
    assert leadership.is_held


def test_leadership_does_not_end_during_a_write_unless_the_lease_expires(
    leadership: Leadership, clock: ManualClock
) -> None:
    with leadership.writing():
        leadership.stop()
        assert not may_write(leadership)
        before = leadership.ended
        clock.pass_time(DURATION_S)
        assert (before, leadership.ended) == (False, True), "the lease has expired anyway"


def test_an_operator_without_a_lease_may_always_write() -> None:
    assert ALONE.is_held
    assert may_write(ALONE, needs_s=1e9)
