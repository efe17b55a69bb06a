"""A broker that stops goes on serving until its clients have gone to who leads now."""

import asyncio
from collections.abc import Iterable

import pytest

from barnabas_broker.replication.departures import DEPARTURE_S, QUIET_S, Departures


class Time:
    """It passes while somebody sleeps; clients are turned away at these times."""

    def __init__(self, turned_away_s: Iterable[float] = ()) -> None:
        self.now_s = 100.0
        self.waiting = sorted(self.now_s + each for each in turned_away_s)
        self.departures = Departures(self, self.sleep)

    def now_ms(self) -> int:
        return int(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        self.now_s += delay_s
        while self.waiting and self.waiting[0] <= self.now_s:
            self.waiting.pop(0)
            self.departures.turned_away()


def waited_s(time: Time) -> float:
    began_s = time.now_s
    asyncio.run(time.departures.until_all_left())
    return time.now_s - began_s


def test_a_broker_that_nobody_asks_waits_only_for_who_might() -> None:
    assert waited_s(Time()) == pytest.approx(QUIET_S, abs=0.1)


def test_it_goes_on_until_it_has_turned_nobody_away_for_a_while() -> None:
    assert waited_s(Time([0.1, 0.5, 0.9])) == pytest.approx(0.9 + QUIET_S, abs=0.1)


def test_who_asks_again_and_again_is_not_waited_for() -> None:
    assert waited_s(Time(each / 10 for each in range(100))) == pytest.approx(DEPARTURE_S, abs=0.1)


def test_who_was_turned_away_long_before_the_stop_is_not_waited_for_longer() -> None:
    time = Time()
    time.departures.turned_away()
    time.now_s += 60
    assert waited_s(time) == pytest.approx(QUIET_S, abs=0.1)
