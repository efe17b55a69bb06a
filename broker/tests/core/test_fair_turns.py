"""Work over many things is split into turns of the event loop, by number and by time."""

import asyncio

from barnabas_core.loop_turns import (
    STEP_ELEMENTS,
    FairRounds,
    FairTurn,
    InSteps,
    at_once,
    flat_in_steps,
    in_steps,
    slices,
)
from harness.manual_clock import ManualClock
from harness.manual_timers import ManualTimers


def test_a_turn_takes_a_limited_number_of_things_if_no_time_passes() -> None:
    turn = FairTurn(ManualClock(), things_max=3)
    assert [turn.take() for _ in range(5)] == [True, True, True, False, False]
    turn.begin()
    assert turn.take()


def test_a_turn_takes_things_until_its_time_is_up_but_at_least_one() -> None:
    clock = ManualClock()
    turn = FairTurn(clock, things_max=100, lasts_s=0.004)
    taken = 0
    while turn.take():
        taken += 1
        clock.pass_time(0.0015)
    assert taken == 3
    clock.pass_time(10)
    turn.begin()
    clock.pass_time(10)
    assert turn.take()


async def test_other_tasks_run_between_the_slices_of_a_task() -> None:
    clock, slices = ManualClock(), [0]

    async def others() -> None:
        while True:
            slices.append(0)
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    async for _ in FairTurn(clock, things_max=1000, lasts_s=0.0035).over(range(100)):
        clock.pass_time(0.001)
        slices[-1] += 1
    beside.cancel()
    assert (sum(slices), max(slices)) == (100, 4)


def test_a_round_continues_in_the_next_turns() -> None:
    timers, done = ManualTimers(), list[int]()

    def work(thing: int) -> None:
        done.append(thing)
        timers.clock.pass_time(0.002)

    rounds = FairRounds(timers.clock, timers, lambda: range(5), work)
    rounds.begin()
    assert done == [0, 1]
    rounds.begin()
    rounds.begin()
    timers.turn()
    assert done == [0, 1, 2, 3]
    while timers.turn():
        pass
    assert done == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_a_stopped_round_skips_the_rest() -> None:
    timers, done = ManualTimers(), list[int]()

    def work(thing: int) -> None:
        done.append(thing)
        timers.clock.pass_time(0.005)

    rounds = FairRounds(timers.clock, timers, lambda: range(5), work)
    rounds.begin()
    rounds.begin()
    rounds.stop()
    timers.pass_time(1)
    assert done == [0]


def test_slices_are_bounded_by_number_and_size_but_contain_at_least_one_thing() -> None:
    assert list(slices([1, 1, 1, 5, 1, 1], int, 2, 3)) == [[1, 1], [1], [5], [1, 1]]
    assert list(slices([], int, 2, 3)) == []


def test_a_list_is_made_in_steps_of_a_few_items() -> None:
    items = range(3 * STEP_ELEMENTS)
    assert len(list(in_steps(items, str))) == 3
    assert at_once(in_steps(items, str)) == [str(each) for each in items]


def test_items_with_and_without_inner_items_take_steps() -> None:
    inner = {0: [1, 2, 3], 50: [4]}

    def flat() -> InSteps[list[int]]:
        return flat_in_steps(range(100), lambda number: inner.get(number, []))

    assert at_once(flat()) == [1, 2, 3, 4]
    assert sum(1 for _ in flat()) == 104 // STEP_ELEMENTS
