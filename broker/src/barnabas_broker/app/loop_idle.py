"""The event loop's selector: it knows how much of its time the loop waits, and how long each turn takes."""

import selectors
from collections import deque
from time import perf_counter
from typing import Final

from barnabas_broker.app.loop_turns import CPU_CHECK_S, LoopTurns

MARK_S: Final = 5.0
MARKS: Final = 13
"""Together the last minute."""


class MeasuringSelector(selectors.DefaultSelector):
    """The loop's selector. What another process takes of the CPU counts as the loop's work, as nobody can tell it."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = LoopTurns()
        self._waited_s = 0.0
        self._ready_s = perf_counter()
        self._marks = deque([(perf_counter(), 0.0)], MARKS)
        """When, and how long had been waited by then."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for files to be ready."""
        began_s = perf_counter()
        self.turns.ended(began_s - self._ready_s, began_s)
        ready = super().select(timeout)
        now_s = perf_counter()
        self._ready_s = now_s
        self._waited_s += now_s - began_s
        if now_s - self.turns.cpu_at_s >= CPU_CHECK_S:
            self.turns.began(now_s)
        if now_s - self._marks[-1][0] >= MARK_S:
            self._marks.append((now_s, self._waited_s))
        return ready

    def idle_share(self) -> float:
        """Of the last minute, 0 to 1."""
        since_s, waited_s = self._marks[0]
        return (self._waited_s - waited_s) / (perf_counter() - since_s)
