"""A bucket of tokens that fills at a limit, as Kafka counts mutations of the controller (KIP-599). Pure."""

from barnabas_core.sampled_rate import SAMPLES, WINDOW_MS


class TokenBucket:
    """The tokens that requests may take, at most those of eleven seconds; the last request may take it below 0."""

    __slots__ = ("_filled_ms", "_tokens")

    def __init__(self) -> None:
        self._tokens: float | None = None
        """The tokens in the bucket; None while it is full since its start."""
        self._filled_ms = 0

    def is_unused(self, limit: float, now_ms: int) -> bool:
        """True if the bucket is full."""
        self._fill(limit, now_ms)
        return self._tokens == _most(limit)

    def count(self, amount: float, limit: float, now_ms: int) -> None:
        """Take tokens, or give them back if the amount is below 0."""
        self._fill(limit, now_ms)
        self._tokens = (self._tokens or 0.0) - amount

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """Return how long it takes until the bucket is not below 0; 0 if it is not now."""
        self._fill(limit, now_ms)
        return round(max(-(self._tokens or 0.0), 0.0) / limit * 1000)

    def _fill(self, limit: float, now_ms: int) -> None:
        tokens = _most(limit) if self._tokens is None else self._tokens
        self._tokens = min(tokens + (now_ms - self._filled_ms) / 1000 * limit, _most(limit))
        self._filled_ms = now_ms


def _most(limit: float) -> float:
    return limit * SAMPLES * WINDOW_MS / 1000
