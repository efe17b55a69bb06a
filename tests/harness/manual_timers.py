"""Timers that call nothing before a test lets time pass or ends a turn of the loop."""

import heapq
from collections.abc import Callable
from itertools import count

from harness.manual_clock import ManualClock


class ManualTimer:
    """One call that is due later."""

    def __init__(self, due_ms: float, delay_s: float, callback: Callable[[], object]) -> None:
        self.due_ms = due_ms
        self.delay_s = delay_s
        """The delay that was asked for; 0 for `call_soon`."""
        self._callback: Callable[[], object] | None = callback

    @property
    def is_waiting(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        """Free the callback, as asyncio does."""
        self._callback = None

    def run(self) -> None:
        """Call it once, or not at all if it was cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualTimers:
    """The `barnabas_core.clock.Timers` of a clock.

    Calls come when they are due, and calls due at the same time in the order in which they were made.
    """

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self._queue: list[tuple[float, int, ManualTimer]] = []
        self._numbers = count()

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualTimer:
        timer = ManualTimer(self.clock.in_ms(delay_s), delay_s, callback)
        heapq.heappush(self._queue, (timer.due_ms, next(self._numbers), timer))
        return timer

    def call_soon(self, callback: Callable[[], object]) -> ManualTimer:
        return self.call_later(0, callback)

    @property
    def waiting(self) -> list[ManualTimer]:
        """Return the timers that were neither run nor cancelled, the next one first."""
        return [timer for _, _, timer in sorted(self._queue, key=lambda each: each[:2]) if timer.is_waiting]

    def pass_time(self, seconds: float = 0) -> None:
        """Let time pass, and call everything that is due meanwhile, at its time."""
        until_ms = self.clock.in_ms(seconds)
        while self._queue and self._queue[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._queue)
            self.clock.passed_ms = max(self.clock.passed_ms, due_ms)
            timer.run()
        self.clock.passed_ms = max(self.clock.passed_ms, until_ms)

    def turn(self) -> bool:
        """Call everything that is due now, but not what these calls add; return False if nothing was due."""
        due = [timer for timer in self.waiting if timer.due_ms <= self.clock.passed_ms]
        for timer in due:
            timer.run()
        self._queue = [each for each in self._queue if each[2].is_waiting]
        heapq.heapify(self._queue)
        return bool(due)
