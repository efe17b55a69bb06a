"""Work that would hold up the loop, done in slices: some milliseconds of it in each turn, and all jobs by turns."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from barnabas_core.clock import Clock, Timers
from barnabas_core.loop_turns import timed

_logger = logging.getLogger(__name__)

T = TypeVar("T")
Job = Callable[[], bool]
"""Does one slice, of about a millisecond; False when there is nothing more to do for now."""

_TURN_S: Final = 0.005
_ITEMS_A_SLICE: Final = 250
_SLICES_A_TURN: Final = 4
"""The most slices in a turn, which ends also under a simulated clock that stands still within it."""


class Turns:
    """The jobs of one coordinator. One that raises is a bug, and ends alone."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Begin or continue the job in the next turn."""
        if not self._jobs:
            self._timers.call_soon(self._turn)
        self._jobs.append(job)

    def run(self, slices: Iterator[object]) -> None:
        """Exhaust an iterator that works with each step: the first step now, the others by turns."""

        def step() -> bool:
            return next(slices, slices) is not slices

        if _goes_on(step):
            self.add(step)

    @timed("groups")
    def _turn(self) -> None:
        end_s = self._clock.monotonic_s() + _TURN_S
        for _ in range(_SLICES_A_TURN):
            if _goes_on(self._jobs[0]):
                self._jobs.rotate(-1)
            else:
                self._jobs.popleft()
            if not self._jobs or self._clock.monotonic_s() >= end_s:
                break
        if self._jobs:
            self._timers.call_soon(self._turn)


def _goes_on(job: Job) -> bool:
    try:
        return job()
    except Exception:
        _logger.exception("bug: a task of the group coordinator failed, and the rest of it was dropped")
        return False


class Pace:
    """The count of items in a slice, which decides when it is over."""

    def __init__(self) -> None:
        self._spent = 0

    def spent(self, items: int) -> bool:
        """Count items; return True once the slice is over."""
        self._spent += items
        if self._spent < _ITEMS_A_SLICE:
            return False
        self._spent = 0
        return True


def portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items, a slice's worth at a time."""
    return (items[start : start + _ITEMS_A_SLICE] for start in range(0, len(items), _ITEMS_A_SLICE))
