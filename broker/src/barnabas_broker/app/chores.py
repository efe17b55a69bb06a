"""Periodic work: each chore has a period, and runs on the loop, or in a thread if it blocks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import NamedTuple, TypeVar

from barnabas_core.loop_turns import timed
from barnabas_core.steps import Steps

R = TypeVar("R")

Supervise = Callable[[str, Coroutine[object, object, None], Callable[[], object]], asyncio.Task[object]]

log = logging.getLogger(__name__)


class Chore(NamedTuple):
    """`run` is called every `period_s`, the first time after `first_s`.

    While `lasts` says so, nobody can tell how long one step of it may take.
    """

    name: str
    period_s: float
    run: Callable[[], Awaitable[None] | None]
    first_s: float | None = None
    lasts: Callable[[], bool] = lambda: False


class Chores:
    """Runs chores side by side until they are stopped. A failed chore is logged and runs again after its period.

    `supervise` runs the rounds of one, by its name, and watches how far it is.
    """

    def __init__(self, supervise: Supervise) -> None:
        self._supervise = supervise
        self._tasks: list[asyncio.Task[object]] = []

    def start(self, chores: list[Chore]) -> None:
        """Start a task for each chore; each does its work once a period."""
        for chore in chores:
            steps = Steps()
            progress = partial(_progress, chore, steps)
            self._tasks.append(self._supervise(chore.name, self._rounds(chore, steps), progress))

    async def stop(self) -> None:
        """Stop the chores: no round begins any more; return once none is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _rounds(self, chore: Chore, steps: Steps) -> None:
        await asyncio.sleep(chore.period_s if chore.first_s is None else chore.first_s)
        while True:
            try:
                pending = timed(chore.name)(chore.run)()
                if pending is not None:
                    await steps.count(pending)
            except Exception:
                log.exception("%s failed; it runs again in %s s", chore.name, chore.period_s)
            await asyncio.sleep(chore.period_s)


def _progress(chore: Chore, steps: Steps) -> object:
    return object() if chore.lasts() else steps.progress()


async def in_thread(threads: Executor, call: Callable[[], R]) -> R:
    """Return what `call` returns, by one of these threads.

    Nothing stops a thread, so a cancelled caller goes on only when the thread has ended. A checkpoint that is written
    late would otherwise take the place of the last one, which says where the logs end. A cancelled caller gets a
    failure first, and ends at its next wait: a sync fails once, the next one passes.
    """
    job, task = asyncio.get_running_loop().run_in_executor(threads, call), asyncio.current_task()
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.gather(job, return_exceptions=True)
        failure = job.exception()
        if failure is None or task is None:
            raise
        task.cancel()
        raise failure from None
