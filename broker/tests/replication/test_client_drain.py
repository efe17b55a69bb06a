"""A broker that shuts down serves until its clients have moved to the new leaders."""

from collections.abc import Iterable

import pytest

from barnabas_broker.replication.other_brokers import DRAIN_S, QUIET_S, ClientDrain
from harness.manual_clock import ManualClock


class Clients:
    """Clients that are turned away at these times; time passes while the broker sleeps."""

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


async def test_a_broker_without_requests_drains_only_for_the_quiet_time() -> None:
    assert await waited_s(Clients()) == pytest.approx(QUIET_S, abs=0.1)


async def test_a_broker_drains_until_no_client_was_turned_away_for_the_quiet_time() -> None:
    assert await waited_s(Clients([0.1, 0.5, 0.9])) == pytest.approx(0.9 + QUIET_S, abs=0.1)


async def test_a_client_that_keeps_asking_is_waited_for_only_until_the_drain_limit() -> None:
    assert await waited_s(Clients(each / 10 for each in range(100))) == pytest.approx(DRAIN_S, abs=0.1)


async def test_a_client_turned_away_long_before_the_shutdown_does_not_delay_it() -> None:
    clients = Clients()
    clients.client_drain.turned_away()
    clients.clock.pass_time(60)
    assert await waited_s(clients) == pytest.approx(QUIET_S, abs=0.1)
