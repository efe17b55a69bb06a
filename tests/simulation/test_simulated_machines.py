"""Machines of the simulation: their tasks, and how these end."""

import asyncio
import gc
import sys
import warnings
from random import Random

import pytest

from simulation.loop import Host, SimulatedLoop


def test_a_task_that_a_dead_machine_never_started_causes_no_warning() -> None:
    loop = SimulatedLoop(Random(0))
    host = Host("b1", loop)
    host.is_paused = True
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        loop.spawn(host, asyncio.sleep(0))
        loop.run_until_complete(asyncio.sleep(1))
        host.die()
        del host
        loop.close()
        gc.collect()
    assert not [str(each.message) for each in warned if "never awaited" in str(each.message)]


async def _hold(lock: asyncio.Lock) -> None:
    async with lock:
        await asyncio.Event().wait()


@pytest.mark.parametrize("dies", [False, True])
def test_tasks_with_a_contended_lock_end_before_the_loop(monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    escaped: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: escaped.append(repr(found.exc_value)))
    loop = SimulatedLoop(Random(0))
    loop.set_exception_handler(lambda _, context: escaped.extend(filter(None, [context.get("exception")])))
    host = Host("b1", loop)

    async def lives() -> None:
        lock = asyncio.Lock()
        for _ in range(2):
            loop.spawn(host, _hold(lock))
        await asyncio.sleep(1)

    loop.run_until_complete(lives())
    if dies:
        host.die()
    loop.end()
    gc.collect()
    assert not escaped


def test_a_task_that_does_not_end_with_the_simulation_is_reported() -> None:
    told: list[BaseException] = []
    loop = SimulatedLoop(Random(0))
    loop.set_exception_handler(lambda _, context: told.extend(filter(None, [context.get("exception")])))

    async def goes_on() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)

    loop.spawn(Host("b1", loop), goes_on())
    loop.run_until_complete(asyncio.sleep(1))
    loop.end()
    assert [str(each) for each in told] == ["coroutine ignored GeneratorExit"]
    assert loop.is_closed()
