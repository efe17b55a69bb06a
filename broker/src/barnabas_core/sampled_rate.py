"""A rate over the last seconds, and the wait until it is within a limit again, as Kafka computes them. Pure."""

from collections import deque
from typing import Final

SAMPLES: Final = 11
"""The number of samples of a rate; quota.window.num by default."""
WINDOW_MS: Final = 1000
"""The time that a sample lasts; quota.window.size.seconds by default."""


class SampledRate:
    """The sum of amounts in samples of a second; times are monotonic milliseconds."""

    __slots__ = ("_samples", "_sum")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque()
        """The start and the sum of each sample."""
        self._sum = 0.0

    def is_unused(self, _limit: float, now_ms: int) -> bool:
        """True if nothing that was counted is left."""
        self._forget(now_ms)
        return self._sum <= 0

    def count(self, amount: float, _limit: float, now_ms: int) -> None:
        """Count an amount, or take one back if it is below 0."""
        self._forget(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < WINDOW_MS:
            start_ms, counted = self._samples.pop()
            self._samples.append((start_ms, counted + amount))
        else:
            self._samples.append((now_ms, amount))
        self._sum += amount

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return how long nothing more may be counted until the rate is at `limit` a second again; 0 for now."""
        self._forget(now_ms)
        if not self._samples:
            return 0
        window_ms = max(now_ms - self._samples[0][0], (SAMPLES - 1) * WINDOW_MS)
        rate = self._sum * 1000 / window_ms
        return round((rate - limit) / limit * window_ms) if rate > limit else 0

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= SAMPLES * WINDOW_MS:
            self._sum -= self._samples.popleft()[1]
        if not self._samples:
            self._sum = 0.0  # Reset the sum, so that rounding errors do not add up.
