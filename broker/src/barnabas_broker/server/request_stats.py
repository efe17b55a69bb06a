"""The cost of each API: plain counters, cheap enough for every request."""

from typing import Final

_UNITS_A_SECOND: Final = 4000
"""The bounds are powers of two of a quarter of a millisecond, so that a bit length finds the bucket."""
_BUCKETS: Final = 18
_BIT_LENGTHS: Final = 64
"""The bit lengths of all times that a clock can show."""
TIME_BOUNDS_MS: Final = tuple(2**number * 1000 / _UNITS_A_SECOND for number in range(_BUCKETS - 1))
"""The upper bounds, 0.25 ms to 16 s; one more bucket counts longer times."""


class RequestStats:
    """The counters of one API since the start."""

    __slots__ = ("_answers", "_unanswered", "_waited_s", "busy_s", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy_s = 0.0
        """The seconds spent in the handler."""
        self._waited_s = 0.0
        """The seconds from the handlers' ends to the later answers."""
        self._unanswered = 0
        """The requests without an answer, or not yet."""
        self._answers = [0] * _BIT_LENGTHS
        """The number of answers by the bit length of their time in units."""

    def answered(self, took_s: float) -> None:
        """Count a request that the handler has answered, and its seconds."""
        self.busy_s += took_s
        self._answers[int(took_s * _UNITS_A_SECOND).bit_length()] += 1

    def deferred(self, busy_s: float) -> None:
        """Count a request that is answered later, and the seconds that the handler has taken."""
        self.busy_s += busy_s
        self._waited_s -= busy_s
        self._unanswered += 1

    def answered_late(self, took_s: float) -> None:
        """Count the answer to a deferred request, and the seconds since the request."""
        self._waited_s += took_s
        self._unanswered -= 1
        self._answers[int(took_s * _UNITS_A_SECOND).bit_length()] += 1

    @property
    def count(self) -> int:
        """The number of requests."""
        return sum(self._answers) + self._unanswered

    @property
    def total_s(self) -> float:
        """The seconds from requests to their answers, waiting included."""
        return self.busy_s + self._waited_s

    @property
    def time_counts(self) -> list[int]:
        """The number of answers for each bound of TIME_BOUNDS_MS, and of longer ones."""
        return [*self._answers[: _BUCKETS - 1], sum(self._answers[_BUCKETS - 1 :])]
