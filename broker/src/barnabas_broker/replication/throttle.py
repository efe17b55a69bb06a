"""How many bytes a second throttled replicas may send or fetch (KIP-73): a bucket that a second's worth fills."""

from collections.abc import Callable
from typing import Final

from barnabas_core.clock import Clock
from barnabas_core.config.log_config import LONG_MAX

UNLIMITED: Final = LONG_MAX
BURST_S: Final = 1.0
PAUSE_S_MAX: Final = 1.0
"""Looks again at least so often, as the rate may have been changed."""
PAUSE_S_MIN: Final = 0.01


class Throttle:
    """`rate` gives the bytes a second of now. What is taken is only known afterwards: the bucket may owe some."""

    def __init__(self, clock: Clock, rate: Callable[[], int]) -> None:
        self._clock = clock
        self._rate = rate
        self._left_bytes = 0.0
        self._filled_s = -BURST_S
        self.bytes_total = 0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._rate() < UNLIMITED

    def take(self, size_bytes: int) -> None:
        """So much was sent or fetched for throttled replicas."""
        self.bytes_total += size_bytes
        self._fill()
        self._left_bytes -= size_bytes

    def pause_s(self) -> float:
        """How long throttled replicas have to wait now; 0 when they need not."""
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
