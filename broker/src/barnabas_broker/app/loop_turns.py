"""The length of turns of the event loop: a histogram, the longest of the last minute, a line for each long one.

Between two waits of the loop everything else waits: requests, leases, other brokers.
"""

import gc
import logging
from bisect import bisect_left
from collections import deque
from time import perf_counter, thread_time
from typing import Final, NamedTuple

from barnabas_broker.app.garbage import GARBAGE, Collections
from barnabas_core.loop_turns import LONGEST_PART, NOTHING_NAMED, SHORT_S

log = logging.getLogger(__name__)

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LONG_S: Final = 0.5
"""A longer turn is logged: leases and clients' time-outs are not far."""
CPU_CHECK_S: Final = 0.01
"""The interval between looks at this thread's CPU time, which cost more than a short turn; so it is no more exact."""
WINDOW_S: Final = 60.0


class Turn(NamedTuple):
    """A turn that has ended. `cpu_s` is its share of work: on a busy machine the process may have stood in a queue."""

    ended_s: float
    seconds: float
    cpu_s: float
    what: str


class LoopTurns:
    """The turns of the loop, as the selector reports them. Times are those of `perf_counter`."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """The counts by upper bound; the last one is of longer turns."""
        self.total_s = 0.0
        self.noted_s = 0.0
        """A turn that is longer has to be reported by `ended`; others may be added to `counts[0]` and `total_s`."""
        self._longest: deque[Turn] = deque()
        """The longest turns of the last minute, each longer than all later ones."""
        self._cpu_s = thread_time()
        self.cpu_at_s = 0.0
        self._collections = Collections()

    def measure_parts(self) -> None:
        """Time parts of turns from now on, collections of garbage among them."""
        LONGEST_PART.now_s = perf_counter
        gc.callbacks.append(self._collections)

    def began(self, now_s: float) -> None:
        """The loop has something to do. Need not be reported within CPU_CHECK_S of `cpu_at_s`."""
        if now_s - self.cpu_at_s >= CPU_CHECK_S:
            self._cpu_s, self.cpu_at_s = thread_time(), now_s

    def ended(self, seconds: float, now_s: float) -> None:
        """Count a turn of the loop that is over; called when the loop waits again."""
        self.total_s += seconds
        self.counts[bisect_left(BOUNDS_S, seconds)] += 1
        if seconds > self.noted_s:
            self._remember(seconds, now_s)
            self.noted_s = SHORT_S
        LONGEST_PART.seconds = SHORT_S

    def _remember(self, seconds: float, now_s: float) -> None:
        while self._longest and self._longest[-1].seconds <= seconds:
            self._longest.pop()
        what = self._what(seconds, now_s)
        turn = Turn(now_s, seconds, min(seconds, thread_time() - self._cpu_s), what)
        self._longest.append(turn)
        while self._longest[0].ended_s < now_s - WINDOW_S:
            self._longest.popleft()
        if seconds > LONG_S:
            log.warning("a turn of the event loop took %.3f s, %.3f s of CPU: %s", seconds, turn.cpu_s, what)

    def _what(self, seconds: float, now_s: float) -> str:
        """Return the part that took most of a turn; a full garbage collection is named even within another part."""
        collections = self._collections
        if collections.full_ended_s > now_s - seconds and collections.full_s > seconds / 2:
            return GARBAGE
        return LONGEST_PART.what if LONGEST_PART.seconds > seconds / 2 else NOTHING_NAMED

    def longest(self) -> Turn | None:
        """The longest turn of the last minute."""
        while self._longest and self._longest[0].ended_s < perf_counter() - WINDOW_S:
            self._longest.popleft()
        if self._longest:
            return self._longest[0]
        self.noted_s = 0.0  # A minute had short turns only: forget the longest.
        return None
