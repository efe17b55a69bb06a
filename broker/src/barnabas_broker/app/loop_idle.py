"""The event loop's selector, which measures the idle time of the loop and the length of its turns."""

import selectors
from collections import deque
from time import perf_counter
from typing import Final

from barnabas_broker.app.loop_turns import CPU_CHECK_S, LoopTurns

MARK_S: Final = 5.0
MARKS: Final = 13
"""The number of samples of the event loop's idle time: one every MARK_S seconds, for the last minute."""


class MeasuringSelector(selectors.DefaultSelector):
    """The selector of the event loop, which measures how long the loop is idle.

    The loop counts as busy while the loop could run but other processes use the CPU.
    """

    def __init__(self) -> None:
        super().__init__()
        self._wait = super().select
        self.turns = LoopTurns()
        self._waited_s = 0.0
        self._ready_s = perf_counter()
        self._marks = deque([(perf_counter(), 0.0)], MARKS)
        """The times of the samples, and the total time that the event loop had waited at each sample."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Count the loop's turn that ends here, wait until a file descriptor is ready, and add up the waiting time."""
        began_s = perf_counter()
        turns, seconds = self.turns, began_s - self._ready_s
        if seconds > turns.noted_s:
            turns.ended(seconds, began_s)
        else:
            turns.counts[0] += 1
            turns.total_s += seconds
        ready = self._wait(timeout)
        self._ready_s = now_s = perf_counter()
        self._waited_s += now_s - began_s
        if now_s - turns.cpu_at_s >= CPU_CHECK_S:
            turns.began(now_s)
            if now_s - self._marks[-1][0] >= MARK_S:
                self._marks.append((now_s, self._waited_s))
        return ready

    def idle_share(self) -> float:
        """Return the share of the last minute in which the loop was idle, 0 to 1."""
        since_s, waited_s = self._marks[0]
        return (self._waited_s - waited_s) / (perf_counter() - since_s)
