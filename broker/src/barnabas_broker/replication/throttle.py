"""The rate limit of throttled replicas (KIP-73): a token bucket that holds one second's bytes."""

from collections.abc import Callable
from typing import Final

from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LONG_MAX

UNLIMITED: Final = LONG_MAX
BURST_S: Final = 1.0
PAUSE_S_MAX: Final = 1.0
"""The longest pause, as the rate may change meanwhile."""
PAUSE_S_MIN: Final = 0.01


class Throttle:
    """The bucket; `rate` returns the bytes per second. Sizes are known only afterwards, so it may go below zero."""

    def __init__(self, clock: Clock, rate: Callable[[], int]) -> None:
        self._clock = clock
        self._rate = rate
        self._left_bytes = 0.0
        self._filled_s = -BURST_S
        self.bytes_total = 0

    @property
    def is_limited(self) -> bool:
        """True if a rate is set."""
        return self._rate() < UNLIMITED

    def take(self, size_bytes: int) -> None:
        """Count bytes that were sent or fetched for throttled replicas."""
        self.bytes_total += size_bytes
        self._fill()
        self._left_bytes -= size_bytes

    def pause_s(self) -> float:
        """Return the seconds for which throttled replicas have to wait now, or 0."""
        if not self.is_limited:
            return 0.0
        self._fill()
        if self._left_bytes > 0:
            return 0.0
        rate = self._rate()
        wait_s = -self._left_bytes / rate if rate else PAUSE_S_MAX
        return min(max(wait_s, PAUSE_S_MIN), PAUSE_S_MAX)

    def _fill(self) -> None:
        now_s, rate = self._clock.monotonic_s(), self._rate()
        self._left_bytes = min(self._left_bytes + (now_s - self._filled_s) * rate, rate * BURST_S)
        self._filled_s = now_s
