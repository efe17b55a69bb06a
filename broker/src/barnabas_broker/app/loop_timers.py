"""The real timers, for everything below that takes them as an argument: one timer of the event loop for all deadlines.

Nearly every deadline is cancelled, as a request is answered long before its time is up. A timer of the loop for each
would cost more than all else that a wait takes. So does a call of the loop for each callback at the end of a turn.
"""

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final

KEPT_MIN: Final = 100
"""The number of deadlines up to which cancelled ones are kept until their time; above it, at most as many as others."""


class Deadline:
    """A callback that runs once at its time, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Keep the callback from running. Harmless when it has run already."""
        self.callback = None

    def run(self) -> None:
        """Run the callback, unless it was cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class LoopTimers:
    """core.clock.Timers over an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: list[tuple[float, int, Deadline]] = []
        """A heap by time, then by the order in which they were set."""
        self._numbers = count()
        self._kept_max = KEPT_MIN
        """The number of deadlines at which the cancelled ones are dropped."""
        self._wake_s = inf
        self._wake: asyncio.TimerHandle | None = None
        self._soon: list[Callable[[], object]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Deadline:
        """Run `callback` once, `delay_s` seconds from now."""
        due_s, deadline, deadlines = self._loop.time() + delay_s, Deadline(callback), self._deadlines
        heappush(deadlines, (due_s, next(self._numbers), deadline))
        if due_s < self._wake_s:
            self._wake_at(due_s)
        if len(deadlines) > self._kept_max:
            self._drop_cancelled()
        return deadline

    def _wake_at(self, due_s: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_s, self._wake = due_s, self._loop.call_at(due_s, self._run_due)

    def _drop_cancelled(self) -> None:
        self._deadlines = [each for each in self._deadlines if each[2].callback is not None]
        heapify(self._deadlines)
        self._kept_max = max(2 * len(self._deadlines), KEPT_MIN)

    def _run_due(self) -> None:
        """Run each due deadline in a call of its own, so that an error ends only that one."""
        self._wake_s, self._wake = inf, None
        now_s, deadlines = self._loop.time(), self._deadlines
        while deadlines and (deadlines[0][0] <= now_s or deadlines[0][2].callback is None):
            deadline = heappop(deadlines)[2]
            if deadline.callback is not None:
                self._loop.call_soon(deadline.run)
        if deadlines:
            self._wake_at(deadlines[0][0])

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run `callback` in the loop's next turn."""
        if not self._soon:
            self._loop.call_soon(self._run_soon)
        self._soon.append(callback)

    def _run_soon(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            try:
                callback()
            except Exception as error:  # As the loop does with a callback of its own.
                self._loop.call_exception_handler({"message": f"Exception in {callback}", "exception": error})
