"""Work over many things takes some of them in a turn of the loop, by number and by time."""

import asyncio
from collections.abc import Callable

from barnabas_core.clock import Cancellable
from barnabas_core.fair_turns import FairRounds, FairTurn


class HandClock:
    """A clock, and timers whose turns come when the test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.soon: list[Callable[[], object]] = []

    def now_ms(self) -> int:
        return round(self.now_s * 1000)

    def monotonic_s(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[[], object]) -> Cancellable:
        self.soon.append(callback)
        return self

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Cancellable:
        return self

    def cancel(self) -> None:
        """Nobody does."""

    def turn(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()


def test_a_turn_takes_so_many_things_where_the_clock_stands_still() -> None:
    turn = FairTurn(HandClock(), things_max=3)
    assert [turn.take() for _ in range(5)] == [True, True, True, False, False]
    turn.begin()
    assert turn.take()


def test_a_turn_takes_what_begins_within_its_time_and_one_thing_however_late_it_is() -> None:
    clock = HandClock()
    turn = FairTurn(clock, things_max=100, lasts_s=0.004)
    taken = 0
    while turn.take():
        taken += 1
        clock.now_s += 0.0015
    assert taken == 3
    clock.now_s += 10
    turn.begin()
    clock.now_s += 10
    assert turn.take()


def test_others_have_a_turn_between_the_slices_of_a_task() -> None:
    clock, slices = HandClock(), [0]

    async def others() -> None:
        while True:
            slices.append(0)
            await asyncio.sleep(0)

    async def work() -> None:
        beside = asyncio.create_task(others())
        async for _ in FairTurn(clock, things_max=1000, lasts_s=0.004).over(range(100)):
            clock.now_s += 0.001
            slices[-1] += 1
        beside.cancel()

    asyncio.run(work())
    assert (sum(slices), max(slices)) == (100, 4)


def test_a_round_without_a_task_goes_on_in_the_next_turns() -> None:
    clock, done = HandClock(), list[int]()

    def work(thing: int) -> None:
        done.append(thing)
        clock.now_s += 0.002

    rounds = FairRounds(clock, clock, lambda: range(5), work)
    rounds.begin()
    assert done == [0, 1]
    rounds.begin()
    rounds.begin()
    clock.turn()
    assert done == [0, 1, 2, 3]
    while clock.soon:
        clock.turn()
    assert done == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
