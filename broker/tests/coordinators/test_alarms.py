"""Alarms: each name is woken at the first of its deadlines, by one timer for all names."""

import pytest

from barnabas_broker.coordinators.runtime.turns import Alarms
from harness.manual_clock import UP_MS, ManualClock
from harness.manual_timers import ManualTimers

NOW_MS = int(UP_MS)


class Sleepers:
    """Names with deadlines, and what has been woken so far."""

    def __init__(self) -> None:
        self.timers = ManualTimers(ManualClock())
        self.woken: list[str] = []
        self.alarms = Alarms(self.timers, self.timers.clock, self._wake)

    def _wake(self, name: str) -> None:
        self.woken.append(name)
        if name == "broken":
            raise RuntimeError("this name cannot be woken")


def test_names_are_woken_in_the_order_of_their_deadlines_by_one_timer() -> None:
    sleepers = Sleepers()
    for name, after_ms in (("late", 300), ("soon", 100), ("later", 400)):
        sleepers.alarms.set(name, NOW_MS + after_ms)
    assert len(sleepers.timers.waiting) == 1
    sleepers.timers.pass_time(0.35)
    assert sleepers.woken == ["soon", "late"]
    sleepers.timers.pass_time(0.1)
    assert sleepers.woken == ["soon", "late", "later"]


def test_name_is_woken_once_at_the_earliest_of_its_deadlines() -> None:
    sleepers = Sleepers()
    for after_ms in (300, 100, 200):
        sleepers.alarms.set("one", NOW_MS + after_ms)
    sleepers.alarms.set("one", None)
    sleepers.timers.pass_time(0.15)
    assert sleepers.woken == ["one"]
    sleepers.timers.pass_time(1)
    assert sleepers.woken == ["one"]


def test_thousands_of_names_with_one_deadline_are_woken_in_several_turns() -> None:
    sleepers, turns = Sleepers(), []
    for number in range(200):
        sleepers.alarms.set(f"name-{number}", NOW_MS + 100)
    sleepers.timers.clock.pass_time(0.1)
    while sleepers.timers.turn():
        turns.append(len(sleepers.woken))
    assert turns == [50, 100, 150, 200]


def test_name_whose_work_fails_keeps_no_other_name_from_its_own() -> None:
    sleepers = Sleepers()
    sleepers.alarms.set("broken", NOW_MS + 100)
    sleepers.alarms.set("whole", NOW_MS + 100)
    with pytest.raises(RuntimeError):
        sleepers.timers.pass_time(0.1)
    sleepers.timers.pass_time(0.1)
    assert sleepers.woken == ["broken", "whole"]


def test_nobody_is_woken_after_all_are_cancelled() -> None:
    sleepers = Sleepers()
    sleepers.alarms.set("one", NOW_MS + 100)
    sleepers.alarms.cancel_all()
    sleepers.timers.pass_time(1)
    assert (sleepers.woken, list(sleepers.timers.waiting)) == ([], [])
