"""The tasks without which a broker cannot work: if a task ends, fails or hangs, the process exits and is restarted.

Otherwise the broker would keep its leases but not serve clients. No task is restarted alone, because a failed task may
have left inconsistent state; a restart of the process reads all state from the disk and the metadata.

`PeriodicTasks` runs periodic work in such a task.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeVar

from barnabas_core.loop_turns import Steps, timed

log = logging.getLogger(__name__)

CHECKS_MIN: Final = 10
"""The minimum number of consecutive checks without progress after which a task counts as hanging."""


class Supervisor:
    """The tasks of the process; `on_failure` is called once with the reason why the process must exit."""

    def __init__(self, on_failure: Callable[[str], object]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[object]] = set()
        self._watched: list[Watched] = []
        self._is_stopping = False
        self.failure: str | None = None
        """The reason why the process must exit; None without failure."""

    def spawn(self, work: Coroutine[object, object, object]) -> None:
        """Run a coroutine as a task; an exception ends the process."""
        self._start(work, _name(work)).add_done_callback(self._finished)

    def attempt(self, work: Coroutine[object, object, object]) -> None:
        """Run a coroutine for one client as a task; exceptions are only logged."""
        self._start(work, _name(work)).add_done_callback(self._attempted)

    def supervise(
        self,
        name: str,
        work: Coroutine[object, object, object],
        progress: Callable[[], object] | None = None,
        hang_s: float = inf,
    ) -> asyncio.Task[object]:
        """Run a task that must not end as long as the broker lives.

        `progress` is called regularly. It must return a new value after each step of the task, and on every call while
        the task is idle. The task counts as hanging if the value stays the same for `hang_s`.
        """
        if progress is not None:
            self._watched.append(Watched(name, progress, hang_s))
        task = self._start(work, name)
        task.add_done_callback(self._ended)
        return task

    def _start(self, work: Coroutine[object, object, object], name: str) -> asyncio.Task[object]:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        return task

    def _attempted(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("the task %s failed", task.get_name(), exc_info=task.exception())

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._finished(task)
        self.fail(f"the task {task.get_name()} has ended, but the broker cannot work without it")

    def _finished(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.raised(f"the task {task.get_name()} failed", error)

    def raised(self, what: str, error: BaseException) -> None:
        """Log an unexpected exception and end the process, unless it is already stopping."""
        if not self._is_stopping:
            log.error("%s", what, exc_info=error)
        self.fail(f"{what}: {type(error).__name__}: {error}")

    def fail(self, reason: str) -> None:
        """Call `on_failure`, which ends the process, unless the process is stopping or has already failed."""
        if self.failure is None and not self._is_stopping:
            self.failure = reason
            self._on_failure(reason)

    def stopping(self) -> None:
        """Note that the process is stopping, so that tasks may end."""
        self._is_stopping = True

    async def watch(self, period_s: float, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Check the progress of the tasks every `period_s`."""
        watchdog = Watchdog(self._watched, period_s)
        while True:
            await sleep(period_s)
            reason = watchdog.check()
            if reason is not None:
                self.fail(reason)

    async def cancel(self, waits_s: float | None = None) -> None:
        """Cancel the running tasks, and wait for their end, at most `waits_s`."""
        self.stopping()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=waits_s)


class Watched(NamedTuple):
    """A task with its progress, and the seconds without progress after which it counts as hung."""

    name: str
    progress: Callable[[], object]
    hang_s: float


class Watchdog:
    """The detection of tasks without progress.

    The watchdog counts calls of `check` instead of time, because time also passes while the process is suspended.
    """

    def __init__(self, watched: Sequence[Watched], period_s: float) -> None:
        """Watch the tasks in `watched`, to which the caller may add tasks later.

        The caller must call `check` every `period_s` seconds.
        """
        self._watched: Final = watched
        self._period_s = period_s
        self._seen: dict[str, tuple[object, int]] = {}

    def check(self) -> str | None:
        """Check all tasks once; return the reason why the process must exit, or None."""
        for name, progress, hang_s in self._watched:
            now = progress()
            before, checks = self._seen.get(name, (None, 0))
            checks = checks + 1 if now == before else 0
            self._seen[name] = now, checks
            if checks >= max(CHECKS_MIN, hang_s / self._period_s):
                return f"the task {name} hangs"
        return None


async def every(
    period_s: float, work: Callable[[], Awaitable[None]], sleep: Callable[[float], Awaitable[None]]
) -> None:
    """Call `work` every `period_s`, for the first time after one period."""
    while True:
        await sleep(period_s)
        await work()


def _name(work: Coroutine[object, object, object]) -> str:
    return getattr(work, "__qualname__", "unnamed")


R = TypeVar("R")

Supervise = Callable[[str, Coroutine[object, object, None], Callable[[], object]], asyncio.Task[object]]


class PeriodicTask(NamedTuple):
    """A task that runs after `first_s` (by default `period_s`), and again `period_s` after the end of each run.

    While `lasts` returns True, the run is expected to take long, and the supervisor does not regard the task as stuck.
    """

    name: str
    period_s: float
    run: Callable[[], Awaitable[None] | None]
    first_s: float | None = None
    lasts: Callable[[], bool] = lambda: False


class PeriodicTasks:
    """The runner of periodic tasks, which run concurrently; a failed task runs again after its period.

    `supervise` starts the asyncio task of a periodic task, and watches its progress.
    """

    def __init__(self, supervise: Supervise) -> None:
        self._supervise = supervise
        self._tasks: list[asyncio.Task[object]] = []

    def start(self, tasks: list[PeriodicTask]) -> None:
        """Start an asyncio task for each periodic task."""
        for task in tasks:
            steps = Steps()
            progress = partial(_progress, task, steps)
            self._tasks.append(self._supervise(task.name, self._rounds(task, steps), progress))

    async def stop(self) -> None:
        """Cancel the periodic tasks, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _rounds(self, task: PeriodicTask, steps: Steps) -> None:
        await asyncio.sleep(task.period_s if task.first_s is None else task.first_s)
        while True:
            try:
                pending = timed(task.name)(task.run)()
                if pending is not None:
                    await steps.count(pending)
            except Exception:
                log.exception("the periodic task %s failed; the next attempt is in %s s", task.name, task.period_s)
            await asyncio.sleep(task.period_s)


def _progress(task: PeriodicTask, steps: Steps) -> object:
    return object() if task.lasts() else steps.progress()


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
