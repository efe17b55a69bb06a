"""Holds work to a number of bytes a second (`log.cleaner.io.max.bytes.per.second`)."""

from collections.abc import Callable


class Throttle:
    """Sleeps as soon as more was spent than the time that has passed allows."""

    def __init__(self, bytes_per_s: float, monotonic_s: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._bytes_per_s = bytes_per_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep
        self._started_s = monotonic_s()
        self._spent_bytes = 0

    def spend(self, size_bytes: int) -> None:
        """So many bytes were read or written."""
        self._spent_bytes += size_bytes
        ahead_s = self._spent_bytes / self._bytes_per_s - (self._monotonic_s() - self._started_s)
        if ahead_s > 0:
            self._sleep(ahead_s)
