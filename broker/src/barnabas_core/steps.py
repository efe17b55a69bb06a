"""The steps of occasional work, by which a watchdog sees its progress."""

from collections.abc import Awaitable, Generator
from functools import partial
from types import coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class Steps:
    """Counts how often the work continued after any wait: for a thread, a store, or its next turn."""

    def __init__(self) -> None:
        self._taken = 0
        self._under_way = 0

    def progress(self) -> object:
        """Return another value whenever the work went on, and always while there is none."""
        return self._taken if self._under_way else object()

    async def count(self, work: Awaitable[R]) -> R:
        """Count the steps of the work; return what it returns, or raise what it raises."""
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
            except BaseException as error:  # For example CancelledError.
                go_on = partial(steps.throw, error)
            else:
                go_on = steps.__next__
