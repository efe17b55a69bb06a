"""The request counts and times of each API, as plain counters that cost little per request."""

from typing import Final

_UNITS_A_SECOND: Final = 4000
"""The number of units in a second; response times are counted in units of 0.25 ms."""
_BUCKETS: Final = 18
_BIT_LENGTHS: Final = 64
"""The number of counters of response times; times with the same bit length, in units of 0.25 ms, share a counter."""
TIME_BOUNDS_MS: Final = tuple(2**number * 1000 / _UNITS_A_SECOND for number in range(_BUCKETS - 1))
"""The upper bounds of the buckets, 0.25 ms to 16 s; one more bucket counts longer times."""


class RequestStats:
    """The counters of one API since the start."""

    __slots__ = ("_answers", "_unanswered", "_waited_s", "busy_s", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.busy_s = 0.0
        """The seconds spent in the handler."""
        self._waited_s = 0.0
        """The seconds from the end of the handler to the response, for deferred responses."""
        self._unanswered = 0
        """The number of requests whose deferred response is unfinished.

        Requests that were dropped because their connection closed may stay in this count.
        """
        self._answers = [0] * _BIT_LENGTHS
        """The counters of response times, in units of 0.25 ms.

        Counter 0 counts times below 1 unit; counter N counts times from 2**(N-1) units to just below 2**N units.
        """

    def answered(self, took_s: float) -> None:
        """Count a request that got its response before the handler returned; add the seconds that the handler took."""
        self.busy_s += took_s
        self._answers[int(took_s * _UNITS_A_SECOND).bit_length()] += 1

    def deferred(self, busy_s: float) -> None:
        """Count a request whose response is deferred, and add the time of the handler in seconds."""
        self.busy_s += busy_s
        self._waited_s -= busy_s
        self._unanswered += 1

    def answered_late(self, took_s: float) -> None:
        """Count a deferred response, and add the time since its request in seconds."""
        self._waited_s += took_s
        self._unanswered -= 1
        self._answers[int(took_s * _UNITS_A_SECOND).bit_length()] += 1

    @property
    def count(self) -> int:
        """The number of requests since the start."""
        return sum(self._answers) + self._unanswered

    @property
    def total_s(self) -> float:
        """The sum of the seconds from each request to its response."""
        return self.busy_s + self._waited_s

    @property
    def time_counts(self) -> list[int]:
        """The number of responses in each bucket of TIME_BOUNDS_MS, and in one for longer times."""
        return [*self._answers[: _BUCKETS - 1], sum(self._answers[_BUCKETS - 1 :])]
