"""A broker that stops goes on serving until its clients have gone to who leads now."""

from collections.abc import Iterable

import pytest

from barnabas_broker.replication.client_drain import DRAIN_S, QUIET_S, ClientDrain
from harness.manual_clock import ManualClock


class Clients:
    """Are turned away at these times; time passes while the broker sleeps."""

    def __init__(self, turned_away_s: Iterable[float] = ()) -> None:
        self.clock = ManualClock()
        self.waiting = sorted(self.clock.monotonic_s() + each for each in turned_away_s)
        self.client_drain = ClientDrain(self.clock, self.sleep)

    async def sleep(self, delay_s: float) -> None:
        self.clock.pass_time(delay_s)
        while self.waiting and self.waiting[0] <= self.clock.monotonic_s():
            self.waiting.pop(0)
            self.client_drain.turned_away()


async def waited_s(clients: Clients) -> float:
    began_s = clients.clock.monotonic_s()
    await clients.client_drain.until_all_left()
    return clients.clock.monotonic_s() - began_s


async def test_a_broker_that_nobody_asks_waits_only_for_who_might() -> None:
    assert await waited_s(Clients()) == pytest.approx(QUIET_S, abs=0.1)


async def test_it_goes_on_until_it_has_turned_nobody_away_for_a_while() -> None:
    assert await waited_s(Clients([0.1, 0.5, 0.9])) == pytest.approx(0.9 + QUIET_S, abs=0.1)


async def test_who_asks_again_and_again_is_not_waited_for() -> None:
    assert await waited_s(Clients(each / 10 for each in range(100))) == pytest.approx(DRAIN_S, abs=0.1)


async def test_who_was_turned_away_long_before_the_stop_is_not_waited_for_longer() -> None:
    clients = Clients()
    clients.client_drain.turned_away()
    clients.clock.pass_time(60)
    assert await waited_s(clients) == pytest.approx(QUIET_S, abs=0.1)
