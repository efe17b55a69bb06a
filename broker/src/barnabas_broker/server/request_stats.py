"""The cost of each API: plain counters, cheap enough for every request."""

from typing import Final

_UNITS_A_SECOND: Final = 4000
"""The bounds are powers of two of a quarter of a millisecond, so that a bit length finds the bucket."""
_BUCKETS: Final = 18
TIME_BOUNDS_MS: Final = tuple(2**number * 1000 / _UNITS_A_SECOND for number in range(_BUCKETS - 1))
"""0.25 ms to 16 s; one more bucket takes what is longer."""


class RequestStats:
    """The counters of one API since the start."""

    __slots__ = ("busy_s", "count", "name", "time_counts", "total_s")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.busy_s = 0.0
        """The seconds spent in the handler."""
        self.total_s = 0.0
        """The seconds from requests to their answers, waiting included."""
        self.time_counts = [0] * _BUCKETS
        """The number of answers for each bound of TIME_BOUNDS_MS, and of longer ones."""

    def answered(self, took_s: float) -> None:
        """Count an answer and the seconds since its request."""
        self.total_s += took_s
        self.time_counts[min(int(took_s * _UNITS_A_SECOND).bit_length(), _BUCKETS - 1)] += 1
