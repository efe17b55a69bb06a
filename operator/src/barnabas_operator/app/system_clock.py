"""The system's clocks."""

import time


class SystemClock:
    """The clock of the machine, as a `kafka.blocking_clock.BlockingClock`."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds since the machine was started, those too in which it was suspended."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        """Blocks for so many seconds."""
        time.sleep(seconds)
