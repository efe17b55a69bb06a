"""The throttle of compaction (`log.cleaner.io.max.bytes.per.second`)."""

from collections.abc import Callable


class CleanerThrottle:
    """The pauses that limit the rate of reads and writes to `bytes_per_s`."""

    def __init__(self, bytes_per_s: float, monotonic_s: Callable[[], float]) -> None:
        self._bytes_per_s = bytes_per_s
        self._monotonic_s = monotonic_s
        self._started_s = monotonic_s()
        self._spent_bytes = 0

    def pause_s(self, size_bytes: int) -> float:
        """Count `size_bytes` that were read or written, and return the seconds to wait."""
        self._spent_bytes += size_bytes
        ahead_s = self._spent_bytes / self._bytes_per_s - (self._monotonic_s() - self._started_s)
        return max(ahead_s, 0.0)
