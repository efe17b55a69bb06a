"""The longest piece of work in this turn of the event loop, for the measurement of turns.

A turn that takes long is noticed when it is over; then it is too late to ask what ran. So work that may take long
leaves its name here, with its time. One loop runs in a process, hence one value for all floors. Without a clock, as in
a simulation, nothing is measured.
"""

from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NOTHING_NAMED: Final = "other"
SHORT_S: Final = 0.001
"""The seconds up to which work is not named, and a turn only counted."""


class LongestPart:
    """The longest part of the present turn. Hot paths that have measured already compare with `seconds` themselves."""

    __slots__ = ("now_s", "seconds", "what")

    def __init__(self) -> None:
        self.now_s: Callable[[], float] = float
        """The clock, set by the selector that measures turns."""
        self.seconds = SHORT_S
        """The seconds of the longest part; the measurement resets them after a turn in which they rose."""
        self.what = NOTHING_NAMED

    def took(self, what: str, seconds: float) -> None:
        """Note the running time of the part `what`."""
        if seconds > self.seconds:
            self.seconds = seconds
            self.what = what


LONGEST_PART: Final = LongestPart()


def timed(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Time a function that may take long and is called seldom, compared with requests."""

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
