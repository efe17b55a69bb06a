"""Count the steps of background work, so that a watchdog can see whether the work makes progress."""

from collections.abc import Awaitable, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class Steps:
    """The number of times that coroutines were resumed, such as after waiting for a thread, a store or their turn."""

    def __init__(self) -> None:
        self._taken = 0
        self._under_way = 0

    def progress(self) -> object:
        """Return a value that changes each time the event loop resumes an awaitable that was passed to `count`.

        While no call of `count` is running, each call of `progress` returns a new value, so that idle work does not
        appear to hang.
        """
        return self._taken if self._under_way else object()

    async def count(self, work: Awaitable[R]) -> R:
        """Await `work`, and count each time that the event loop resumes it; return its result or raise its error."""
        self._under_way += 1
        try:
            return await self._each_step(work)
        finally:
            self._under_way -= 1

    @coroutine
    def _each_step(self, work: Awaitable[R]) -> Generator[Any, None, R]:
        steps = work.__await__()
        go_on = steps.__next__
        while True:
            self._taken += 1
            try:
                awaited = go_on()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                yield awaited
            except BaseException as error:  # Pass on errors such as CancelledError, which `work` may handle.
                go_on = partial(steps.throw, error)
            else:
                go_on = steps.__next__
