"""The parts that all coordinators use: long jobs in slices, deadlines of names with one timer, strings in records."""

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeVar

from barnabas_core.clock import Cancellable, Clock, Timers
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


_WOKEN_AT_ONCE_MAX: Final = 50
"""The names that are woken in one turn of the event loop."""


class Now(NamedTuple):
    """The current time: the wall-clock time `wall_ms` for records, and the monotonic time `steady_ms` for deadlines."""

    wall_ms: int
    steady_ms: int


class Alarms:
    """The deadlines of one coordinator's partition; a timer for each name would take twice the memory."""

    def __init__(self, timers: Timers, clock: Clock, wake: Callable[[str], object]) -> None:
        """Create the collection; `wake` is called with a name when its deadline has come."""
        self._timers = timers
        self._clock = clock
        self._wake = wake
        self._deadlines: dict[str, int] = {}
        self._queue: list[tuple[int, str]] = []
        """A heap of deadlines with their names. An entry counts only if it is the deadline of the name."""
        self._timer: Cancellable | None = None
        self._timer_ms = 0

    def set(self, name: str, at_ms: int | None) -> None:
        """Set the deadline of a name to a monotonic time, unless it has an earlier one; None sets none."""
        if at_ms is None:
            return
        before_ms = self._deadlines.get(name)
        if before_ms is None or at_ms < before_ms:
            self._deadlines[name] = at_ms
            heappush(self._queue, (at_ms, name))
            self._start_timer()

    def _start_timer(self) -> None:
        """Set the timer to the first deadline, unless it fires earlier."""
        at_ms = self._queue[0][0]
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer_ms = at_ms
        self._timer = self._timers.call_later(max(at_ms - self._now_ms(), 0) / 1000, self._fire)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_s() * 1000)

    def _fire(self) -> None:
        self._timer = None
        try:
            self._wake_late()
        finally:  # A name whose work fails keeps no other one from its own.
            if self._queue:
                self._start_timer()

    def _wake_late(self) -> None:
        now_ms, woken = self._now_ms(), 0
        while self._queue and self._queue[0][0] <= now_ms and woken < _WOKEN_AT_ONCE_MAX:
            at_ms, name = heappop(self._queue)
            if self._deadlines.get(name) == at_ms:
                del self._deadlines[name]
                woken += 1
                self._wake(name)

    def cancel_all(self) -> None:
        """Cancel the timer, and forget all deadlines."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._deadlines.clear()
        self._queue.clear()


_INT16: Final = struct.Struct(">h")


class MalformedRecord(ValueError):
    """The error for a record that cannot be decoded, or that describes an impossible group."""


def encode_string(text: str) -> bytes:
    """Return a string with its 16-bit length."""
    blob = text.encode()
    return _INT16.pack(len(blob)) + blob


def read_string(data: bytes, position: int) -> tuple[str, int]:
    """Return a string with a 16-bit length, and the position after the string.

    Raises MalformedRecord, or struct.error or UnicodeDecodeError for a length or text that cannot be decoded.
    """
    (length,) = _INT16.unpack_from(data, position)
    end = position + 2 + length
    if length < 0 or end > len(data):
        raise MalformedRecord(
            f"a string of {length} bytes at position {position} does not fit into data of {len(data)} bytes"
        )
    return data[position + 2 : end].decode(), end
