"""Long jobs that run in slices, a few milliseconds in each turn of the event loop, so that other work need not wait."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from barnabas_core.clock import Clock, Timers
from barnabas_core.loop_turns import timed

_logger = logging.getLogger(__name__)

T = TypeVar("T")
Job = Callable[[], bool]
"""The type of a job: each call runs one slice of about a millisecond, and returns False if nothing is left to do."""

_TURN_S: Final = 0.005
_ITEMS_A_SLICE: Final = 250
_SLICES_A_TURN: Final = 4
"""The maximum number of slices of jobs in a turn of the event loop.

The time limit `_TURN_S` alone would never end a turn while a simulated clock stands still.
"""


class Turns:
    """The queue of jobs (`Job`) of one coordinator. An exception in a job is a bug, and ends only this job."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._timers = timers
        self._clock = clock
        self._jobs: deque[Job] = deque()

    def add(self, job: Job) -> None:
        """Run the job from the next turn of the event loop on, until it returns False."""
        if not self._jobs:
            self._timers.call_soon(self._turn)
        self._jobs.append(job)

    def run(self, slices: Iterator[object]) -> None:
        """Call `next` on an iterator until it ends: once now, then as a job in later turns of the event loop."""

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
        _logger.exception("bug: a background job of a coordinator failed, and the rest of the job is skipped")
        return False


class Pace:
    """The number of items that a job has handled in its current slice; the slice ends at `_ITEMS_A_SLICE` items."""

    def __init__(self) -> None:
        self._spent = 0

    def spent(self, items: int) -> bool:
        """Add `items` to the number of items that the job has handled in the current slice.

        Return True, and start the number from 0 again, if the slice should end.
        """
        self._spent += items
        if self._spent < _ITEMS_A_SLICE:
            return False
        self._spent = 0
        return True


def portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Split a sequence into parts that are each small enough for one call of a `Job`."""
    return (items[start : start + _ITEMS_A_SLICE] for start in range(0, len(items), _ITEMS_A_SLICE))
