"""The real clock, for everything below that takes it as an argument."""

import asyncio
import sys
import time
from functools import partial
from typing import Final

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
    """Seconds since the machine was booted, suspended time included. Hot, and therefore a C function."""
