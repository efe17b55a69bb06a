"""The clocks of the operating system, and the timers of the event loop.

One asyncio timer serves all deadlines. Most deadlines are cancelled, because requests are answered long before their
timeout. An asyncio timer for each deadline, or a `call_soon` for each callback, would cost more than all other work for
a waiting request.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Final

SWITCH_S: Final = 0.0005
"""The seconds after which a thread that runs Python gives way to the event loop; Python's default of 5 ms is too
long."""


def interrupt_threads_soon() -> None:
    """Shorten Python's thread switch interval, so that other threads delay the event loop less."""
    sys.setswitchinterval(SWITCH_S)


class SystemClock:
    """The implementation of `core.clock.LoopClock` with the clocks of the operating system."""

    sleep = staticmethod(asyncio.sleep)
    timeout = staticmethod(asyncio.timeout)

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds."""
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    """The seconds since the machine was booted, including suspended time; a C function, because it is called often."""


KEPT_MIN: Final = 100
"""The number of deadlines up to which the heap is not searched for cancelled deadlines."""


class Deadline:
    """A callback that runs once when its time has come, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Cancel the callback; do nothing if the callback has already run."""
        self.callback = None

    def run(self) -> None:
        """Run the callback, unless it was cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class LoopTimers:
    """The implementation of `core.clock.Timers` with one asyncio timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: list[tuple[float, int, Deadline]] = []
        """The deadlines as a heap, ordered by time and then by creation."""
        self._numbers = count()
        self._kept_max = KEPT_MIN
        """The number of deadlines above which the heap is searched for cancelled deadlines, at least KEPT_MIN."""
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
        """Schedule the callback of each due deadline separately, so that an exception affects no other callback."""
        self._wake_s, self._wake = inf, None
        now_s, deadlines = self._loop.time(), self._deadlines
        while deadlines and (deadlines[0][0] <= now_s or deadlines[0][2].callback is None):
            deadline = heappop(deadlines)[2]
            if deadline.callback is not None:
                self._loop.call_soon(deadline.run)
        if deadlines:
            self._wake_at(deadlines[0][0])

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run `callback` in the next turn of the event loop."""
        if not self._soon:
            self._loop.call_soon(self._run_soon)
        self._soon.append(callback)

    def _run_soon(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            try:
                callback()
            except Exception as error:  # The event loop handles exceptions of its callbacks in the same way.
                self._loop.call_exception_handler({"message": f"Exception in {callback}", "exception": error})
