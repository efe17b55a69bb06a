"""Record the longest piece of work in the current turn of the event loop.

A long turn is noticed only when it has ended, too late to see what ran. Work that may take long therefore notes its
name and its time here. A process has one event loop, hence one global value. Without a clock, as in a simulation,
nothing is measured.
"""

from collections.abc import Callable
from functools import wraps
from math import inf
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NOTHING_NAMED: Final = "other"
REQUESTS_S: Final = 0.008
"""The time limit in seconds for the requests of all connections in one turn; the rest wait for the next turn."""
SHORT_S: Final = 0.001
"""The limit in seconds: the longest work in a turn of the event loop is recorded only if it takes longer."""


class LongestPart:
    """The longest piece of work in the current turn of the event loop.

    Hot paths that measure their duration anyway set `seconds` and `what` directly instead of calling `took`.
    """

    __slots__ = ("now_s", "seconds", "what")

    def __init__(self) -> None:
        self.now_s: Callable[[], float] = float
        """The clock in seconds; it always returns 0.0 until the broker replaces it to measure the turns."""
        self.seconds = SHORT_S
        """The seconds of the longest piece of work in this turn, or SHORT_S if none has taken longer."""
        self.what = NOTHING_NAMED

    def took(self, what: str, seconds: float) -> None:
        """Note that the work `what` took `seconds`, if it is the longest of this turn and longer than SHORT_S."""
        if seconds > self.seconds:
            self.seconds = seconds
            self.what = what


LONGEST_PART: Final = LongestPart()


class LoopShare:
    """The time at which requests have used up their share of the current turn of the event loop.

    The event loop's selector sets `ends_s` when a turn begins.
    """

    __slots__ = ("ends_s", "now_s", "seconds")

    def __init__(self) -> None:
        self.now_s: Callable[[], float] = float
        """The clock in seconds; it always returns 0.0 until the broker replaces it to measure the turns."""
        self.seconds = REQUESTS_S
        self.ends_s = inf
        """The end of the share; infinite where the turns are not measured, such as in a simulation."""

    def is_used_up(self) -> bool:
        """True if requests should wait for the next turn."""
        return self.now_s() > self.ends_s

    def charge(self, seconds: float) -> None:
        """Count work that begins in the next turn, because a request of this turn has started it."""
        self.ends_s -= seconds

    def extend(self, seconds: float) -> None:
        """Leave at least so many seconds of the share from now on."""
        self.ends_s = max(self.ends_s, self.now_s() + seconds)


LOOP_SHARE: Final = LoopShare()


def timed(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that times a function that may take long and is called rarely."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def measured(*args: P.args, **kwargs: P.kwargs) -> R:
            began_s = LONGEST_PART.now_s()
            try:
                return function(*args, **kwargs)
            finally:
                LONGEST_PART.took(what, LONGEST_PART.now_s() - began_s)

        return measured

    return decorate
