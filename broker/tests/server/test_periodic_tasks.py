"""Periodic work, and its end at a shutdown."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from barnabas_broker.app.supervision import PeriodicTask, PeriodicTasks, Supervisor, in_thread

THREADS = ThreadPoolExecutor(1)
TURNS = 50
"""The turns of the loop: more than a stop takes that waits for nothing."""


async def test_a_stop_waits_for_a_periodic_task_that_a_thread_has_begun() -> None:
    """An earlier checkpoint could otherwise replace the one that the shutdown writes."""
    begun, may_end, written = threading.Event(), threading.Event(), []

    def write() -> None:
        begun.set()
        may_end.wait()
        written.append("checkpoint")

    supervisor = Supervisor(pytest.fail)
    periodic_tasks = PeriodicTasks(supervisor.supervise)
    periodic_tasks.start([PeriodicTask("checkpoints", 0, lambda: in_thread(THREADS, write))])
    await asyncio.to_thread(begun.wait)
    supervisor.stopping()
    stopping = asyncio.ensure_future(periodic_tasks.stop())
    for _ in range(TURNS):
        await asyncio.sleep(0)
    was_done = stopping.done()
    may_end.set()
    await stopping
    assert written
    assert not was_done


async def test_an_exception_in_a_thread_reaches_the_task_that_waits() -> None:
    def fail() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match=r"^no space left$"):
        await in_thread(THREADS, fail)


async def test_an_exception_in_a_thread_reaches_a_task_that_is_cancelled_meanwhile() -> None:
    """A sync fails once, and the next one passes: if its error were dropped, lost data would count as written."""
    begun, may_end, heard, went_on = threading.Event(), threading.Event(), [], []

    def fail() -> None:
        begun.set()
        may_end.wait()
        raise OSError("a sync failed")

    async def flush() -> None:
        try:
            await in_thread(THREADS, fail)
        except OSError as error:
            heard.append(str(error))
        await asyncio.sleep(0)
        went_on.append("a cancelled task")

    task = asyncio.ensure_future(flush())
    await asyncio.to_thread(begun.wait)
    task.cancel()
    may_end.set()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert heard == ["a sync failed"]
    assert went_on == []
