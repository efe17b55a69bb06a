"""The periodic tasks of a broker, each with a period of its own."""

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
    """A task that runs after `first_s` (by default `period_s`), and again `period_s` after the end of each run.

    While `lasts` returns True, the run is expected to take long, and the supervisor does not regard the task as stuck.
    """

    name: str
    period_s: float
    run: Callable[[], Awaitable[None] | None]
    first_s: float | None = None
    lasts: Callable[[], bool] = lambda: False


class Chores:
    """The runner of periodic tasks (chores), which run concurrently; a failed task runs again after its period.

    `supervise` starts the task of a chore, and watches its progress.
    """

    def __init__(self, supervise: Supervise) -> None:
        self._supervise = supervise
        self._tasks: list[asyncio.Task[object]] = []

    def start(self, chores: list[Chore]) -> None:
        """Start a task for each chore."""
        for chore in chores:
            steps = Steps()
            progress = partial(_progress, chore, steps)
            self._tasks.append(self._supervise(chore.name, self._rounds(chore, steps), progress))

    async def stop(self) -> None:
        """Cancel the tasks of the chores, and wait until the tasks have ended."""
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
                log.exception("the periodic task %s failed; the next attempt is in %s s", chore.name, chore.period_s)
            await asyncio.sleep(chore.period_s)


def _progress(chore: Chore, steps: Steps) -> object:
    return object() if chore.lasts() else steps.progress()


async def in_thread(threads: Executor, call: Callable[[], R]) -> R:
    """Call `call` in a thread of `threads`, and return its result.

    A cancelled caller waits until the call has ended, because a thread cannot be stopped, and could write an old
    checkpoint after a newer checkpoint. If the call fails after the cancellation, the caller first gets the exception,
    and is cancelled at its next `await`.
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
