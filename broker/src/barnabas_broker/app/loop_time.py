"""The real clock and the real timers, for everything below that takes them as arguments."""

import asyncio
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas_core.clock import Cancellable

SWITCH_S: Final = 0.0005
"""A thread that runs Python lets the loop go on after so long. Python's own 5 ms add up: a system call is a switch."""


def interrupt_threads_soon() -> None:
    """Switch threads sooner in the whole process: threads take a little longer, and the loop's turns stay short."""
    sys.setswitchinterval(SWITCH_S)


class SystemClock:
    """core.clock.LoopClock over the system's clocks."""

    sleep = staticmethod(asyncio.sleep)
    timeout = staticmethod(asyncio.timeout)

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds."""
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    """Seconds since the machine was started, those too in which it was suspended. Hot: so it is no function of ours."""


class LoopTimers:
    """core.clock.Timers over an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Cancellable:
        """Run `callback` once, `delay_s` seconds from now."""
        return self._loop.call_later(delay_s, callback)

    def call_soon(self, callback: Callable[[], object]) -> Cancellable:
        """Run `callback` in the loop's next turn."""
        return self._loop.call_soon(callback)
