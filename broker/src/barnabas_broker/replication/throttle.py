"""The rate limit of throttled replicas (KIP-73): a token bucket with the capacity of one second."""

from collections.abc import Callable
from typing import Final

from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LONG_MAX

UNLIMITED: Final = LONG_MAX
BURST_S: Final = 1.0
PAUSE_S_MAX: Final = 1.0
"""The maximum length of a pause in seconds; after each pause the rate is read again, as it may have changed."""
PAUSE_S_MIN: Final = 0.01


class Throttle:
    """The token bucket; `rate` returns the limit in bytes per second.

    The tokens may become negative, because the size of a response is known only after records were read or fetched.
    """

    def __init__(self, clock: Clock, rate: Callable[[], int]) -> None:
        self._clock = clock
        self._rate = rate
        self._left_bytes = 0.0
        self._filled_s = -BURST_S
        self.bytes_total = 0

    @property
    def is_limited(self) -> bool:
        """True if a rate limit is set."""
        return self._rate() < UNLIMITED

    def take(self, size_bytes: int) -> None:
        """Count bytes that were sent or fetched for throttled replicas, and take as many tokens."""
        self.bytes_total += size_bytes
        self._fill()
        self._left_bytes -= size_bytes

    def pause_s(self) -> float:
        """Return the time in seconds for which throttled replicas have to pause now, or 0."""
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
