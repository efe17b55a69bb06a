"""The system's clocks."""

import asyncio
import time


class SystemClock:
    """The clock of the machine, for coroutines (`LoopClock`) and for threads (`kafka.cluster_admin.BlockingClock`)."""

    def now_ms(self) -> int:
        """Return the wall-clock time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return the seconds since the boot of the machine, including time in suspend."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    async def sleep(self, seconds: float) -> None:
        """Wait for the given seconds, while other coroutines run."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float) -> asyncio.Timeout:
        """Return a context manager that raises TimeoutError if its body takes longer than the given seconds."""
        return asyncio.timeout(seconds)

    def block(self, seconds: float) -> None:
        """Block the thread for the given seconds."""
        time.sleep(seconds)
