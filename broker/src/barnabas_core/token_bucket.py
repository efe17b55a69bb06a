"""A token bucket that fills at the rate of a limit, as Kafka counts controller mutations (KIP-599)."""

from barnabas_core.sampled_rate import SAMPLES, WINDOW_MS


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
