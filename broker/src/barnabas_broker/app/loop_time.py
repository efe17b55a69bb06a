"""The wall clock and the monotonic clock of the operating system."""

import asyncio
import sys
import time
from functools import partial
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
