"""A token bucket that fills at the rate of a limit, as Kafka counts controller mutations (KIP-599)."""

from collections import deque
from typing import Final

SAMPLES: Final = 11
"""The number of samples of a rate, as in Kafka's default of quota.window.num."""
WINDOW_MS: Final = 1000
"""The length of a sample in ms, as in Kafka's default of quota.window.size.seconds."""


class SampledRate:
    """The amounts of the last eleven seconds, summed in samples of one second; all times are monotonic ms."""

    __slots__ = ("_samples", "_sum")

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque()
        """The samples, oldest first: the start of the sample in ms, and the sum of the amounts counted in it."""
        self._sum = 0.0

    def is_unused(self, _limit: float, now_ms: int) -> bool:
        """True if the amounts of the last eleven seconds add up to nothing."""
        self._forget(now_ms)
        return self._sum <= 0

    def count(self, amount: float, _limit: float, now_ms: int) -> None:
        """Count an amount; a negative amount takes back an earlier one."""
        self._forget(now_ms)
        if self._samples and now_ms - self._samples[-1][0] < WINDOW_MS:
            start_ms, counted = self._samples.pop()
            self._samples.append((start_ms, counted + amount))
        else:
            self._samples.append((now_ms, amount))
        self._sum += amount

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return the ms until the rate falls to `limit` per second if nothing is counted, or 0 if the rate is lower."""
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


class TokenBucket:
    """A bucket that gets `limit` tokens each second, and holds at most the tokens of eleven seconds.

    A request may take more tokens than there are, so that their number becomes negative.
    """

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        """The tokens in the bucket, negative after an overdraft; None before the first use, which means full."""
        self._filled_ms = 0

    def is_unused(self, limit: float, now_ms: int) -> bool:
        """True if the bucket is full."""
        self._fill(limit, now_ms)
        return self._tokens == _most(limit)

    def count(self, amount: float, limit: float, now_ms: int) -> None:
        """Take tokens; a negative amount gives tokens back."""
        self._fill(limit, now_ms)
        self._tokens = (self._tokens or 0.0) - amount

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return the ms until the bucket is not negative; 0 if it is not negative now."""
        self._fill(limit, now_ms)
        return round(max(-(self._tokens or 0.0), 0.0) / limit * 1000)

    def _fill(self, limit: float, now_ms: int) -> None:
        tokens = _most(limit) if self._tokens is None else self._tokens
        self._tokens = min(tokens + (now_ms - self._filled_ms) / 1000 * limit, _most(limit))
        self._filled_ms = now_ms


def _most(limit: float) -> float:
    return limit * SAMPLES * WINDOW_MS / 1000
