"""The time, and a deadline for each name, such as a group, with one timer for all of them."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from barnabas_core.clock import Cancellable, Clock, Timers

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
