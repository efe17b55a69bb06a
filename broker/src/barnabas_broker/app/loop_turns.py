"""The event loop's selector, which measures its idle time and turns, its timers, and the detection of its pauses.

A turn is an iteration of the event loop. During a turn all other work waits, such as requests and the renewal of
leases.

The garbage collector is set up here, too, because the loop stops during a full collection, which visits all objects
that are not frozen. `gc.freeze` excludes all current objects. A frozen object is still freed when its last reference is
removed, but a cycle of frozen objects is never freed.

The clocks are those of the operating system. For the timers of the event loop, one asyncio timer serves all deadlines.
Most deadlines are cancelled, because requests are answered long before their timeout. An asyncio timer for each
deadline, or a `call_soon` for each callback, would cost more than all other work for a waiting request.
"""

import asyncio
import gc
import logging
import selectors
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from time import perf_counter, thread_time
from typing import Final

from barnabas_core.clock import Clock, Timers
from barnabas_core.loop_turns import LONGEST_PART, LOOP_SHARE, NOTHING_NAMED, SHORT_S, Turn

GARBAGE: Final = "garbage collection"
OLDEST: Final = 2
"""The oldest generation, which is collected by a full collection."""
FREEZE_S: Final = 0.01
"""The CPU time in seconds of a full collection above which the surviving objects are frozen."""


FULL_EACH: Final = 2
"""The number of collections of the middle generation before a full collection, a fifth of Python's default.

A large request makes very many objects; the fewer are new, the shorter is the collection that freezes them.
"""


class Collections:
    """The callback of the garbage collector, which measures collections in all threads."""

    def __init__(self) -> None:
        self._began_s = self._cpu_s = 0.0
        self.full_ended_s = self.full_s = 0.0
        """The end and the duration of the last full collection, in seconds of `perf_counter`."""

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Measure a garbage collection, and freeze all objects after a long full collection.

        Python calls this object, which is in `gc.callbacks`, at the start and at the end of each collection.
        """
        is_full = info["generation"] == OLDEST
        if phase == "start":
            self._began_s = perf_counter()
            if is_full:
                self._cpu_s = thread_time()
            return
        ended_s = perf_counter()
        LONGEST_PART.took(GARBAGE, ended_s - self._began_s)
        if is_full:
            self.full_ended_s, self.full_s = ended_s, ended_s - self._began_s
            if thread_time() - self._cpu_s > FREEZE_S:
                gc.freeze()  # No garbage is frozen, because a full collection has just removed all of it.


def freeze() -> None:
    """Collect garbage, freeze all objects, and collect garbage again.

    Called before a broker loads its logs, and again before the broker serves clients. Python delays a full collection
    until the number of new objects reaches a quarter of the number of objects that survived the previous full
    collection. All objects are frozen before the second collection, so no object counts as a survivor of the second
    collection, and Python does not delay the next full collection.
    """
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_EACH)
    gc.collect()
    gc.freeze()
    gc.collect()


log = logging.getLogger(__name__)

BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
LONG_S: Final = 0.5
"""The duration in seconds above which an event loop turn is logged: longer turns may let leases expire."""
CPU_CHECK_S: Final = 0.01
"""The minimum interval in seconds between measurements of CPU time.

A measurement takes longer than a short turn, so most turns are not measured.
"""
WINDOW_S: Final = 60.0
MARK_S: Final = 5.0
MARKS: Final = 13
"""The number of samples of the event loop's idle time: one every MARK_S seconds, for the last minute."""


class LoopTurns:
    """The turns (iterations) of the event loop, as its selector measures them. Times are those of `perf_counter`."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        """The number of turns by upper bound of the duration; the last count is for turns above all bounds."""
        self.total_s = 0.0
        self.noted_s = 0.0
        """The duration in seconds above which the selector calls `ended` for a turn.

        The selector adds all other turns to `counts[0]` and `total_s` itself.
        """
        self._longest: deque[Turn] = deque()
        """The turns of the last minute, oldest first; the first turn is the longest.

        A turn is removed as soon as a later turn takes as long or longer.
        """
        self._cpu_s = thread_time()
        self.cpu_at_s = 0.0
        self._collections = Collections()

    def measure_parts(self) -> None:
        """Begin to measure garbage collections and the calls that are marked with `timed`."""
        LONGEST_PART.now_s = LOOP_SHARE.now_s = perf_counter
        gc.callbacks.append(self._collections)

    def began(self, now_s: float) -> None:
        """Read the CPU time at the start of a turn, at most once in CPU_CHECK_S."""
        if now_s - self.cpu_at_s >= CPU_CHECK_S:
            self._cpu_s, self.cpu_at_s = thread_time(), now_s

    def ended(self, seconds: float, now_s: float) -> None:
        """Count a turn that ended at `now_s`; remember the turn if it was longer than `noted_s`.

        A remembered turn is logged if it took more than LONG_S.
        """
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
            log.warning(
                "an iteration of the event loop took %.3f s and used %.3f s of CPU; the longest work was: %s",
                seconds,
                turn.cpu_s,
                what,
            )

    def _what(self, seconds: float, now_s: float) -> str:
        """Return what took over half of the turn: a full garbage collection or a call marked with `timed`.

        Return NOTHING_NAMED if neither took so long.
        """
        collections = self._collections
        if collections.full_ended_s > now_s - seconds and collections.full_s > seconds / 2:
            return GARBAGE
        return LONGEST_PART.what if LONGEST_PART.seconds > seconds / 2 else NOTHING_NAMED

    def longest(self) -> Turn | None:
        """Return the longest remembered turn of the event loop in the last minute, or None.

        Turns of at most SHORT_S are usually not remembered.
        """
        while self._longest and self._longest[0].ended_s < perf_counter() - WINDOW_S:
            self._longest.popleft()
        if self._longest:
            return self._longest[0]
        self.noted_s = 0.0  # The next turn takes longer than `noted_s`, so it is remembered, however short it is.
        return None


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
        LOOP_SHARE.ends_s = now_s + LOOP_SHARE.seconds
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


SWITCH_S: Final = 0.0005
"""The seconds after which a thread that runs Python gives way to the event loop; Python's default of 5 ms is too
long."""


def interrupt_threads_soon() -> None:
    """Shorten Python's thread switch interval, so that other threads delay the event loop less."""
    sys.setswitchinterval(SWITCH_S)


class SystemClock:
    """The implementation of `core.clock.LoopClock` with the clocks of the operating system."""

    sleep = staticmethod(asyncio.sleep)
    timeout = staticmethod(asyncio.timeout)

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds."""
        return time.time_ns() // 1_000_000

    monotonic_s = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    """The seconds since the machine was booted, including suspended time; a C function, because it is called often."""


KEPT_MIN: Final = 100
"""The number of deadlines up to which the heap is not searched for cancelled deadlines."""


class Deadline:
    """A callback that runs once when its time has come, unless it is cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Cancel the callback; do nothing if the callback has already run."""
        self.callback = None

    def run(self) -> None:
        """Run the callback, unless it was cancelled."""
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class LoopTimers:
    """The implementation of `core.clock.Timers` with one asyncio timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: list[tuple[float, int, Deadline]] = []
        """The deadlines as a heap, ordered by time and then by creation."""
        self._numbers = count()
        self._kept_max = KEPT_MIN
        """The number of deadlines above which the heap is searched for cancelled deadlines, at least KEPT_MIN."""
        self._wake_s = inf
        self._wake: asyncio.TimerHandle | None = None
        self._soon: list[Callable[[], object]] = []

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Deadline:
        """Run `callback` once, `delay_s` seconds from now."""
        due_s, deadline, deadlines = self._loop.time() + delay_s, Deadline(callback), self._deadlines
        heappush(deadlines, (due_s, next(self._numbers), deadline))
        if due_s < self._wake_s:
            self._wake_at(due_s)
        if len(deadlines) > self._kept_max:
            self._drop_cancelled()
        return deadline

    def _wake_at(self, due_s: float) -> None:
        if self._wake is not None:
            self._wake.cancel()
        self._wake_s, self._wake = due_s, self._loop.call_at(due_s, self._run_due)

    def _drop_cancelled(self) -> None:
        self._deadlines = [each for each in self._deadlines if each[2].callback is not None]
        heapify(self._deadlines)
        self._kept_max = max(2 * len(self._deadlines), KEPT_MIN)

    def _run_due(self) -> None:
        """Schedule the callback of each due deadline separately, so that an exception affects no other callback."""
        self._wake_s, self._wake = inf, None
        now_s, deadlines = self._loop.time(), self._deadlines
        while deadlines and (deadlines[0][0] <= now_s or deadlines[0][2].callback is None):
            deadline = heappop(deadlines)[2]
            if deadline.callback is not None:
                self._loop.call_soon(deadline.run)
        if deadlines:
            self._wake_at(deadlines[0][0])

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Run `callback` in the next turn of the event loop."""
        if not self._soon:
            self._loop.call_soon(self._run_soon)
        self._soon.append(callback)

    def _run_soon(self) -> None:
        soon, self._soon = self._soon, []
        for callback in soon:
            try:
                callback()
            except Exception as error:  # The event loop handles exceptions of its callbacks in the same way.
                self._loop.call_exception_handler({"message": f"Exception in {callback}", "exception": error})


TICKS_IN_LIMIT: Final = 4


class PauseDetection:
    """The detection of pauses longer than `limit_ms`, of this process or of the whole machine.

    A leader that was paused continues as if it still led, with log ends and committed offsets that may be outdated,
    while other brokers may have taken over its partitions. After a pause of half a session, this process therefore
    reads the latest metadata before it answers (`catch_up`). A failure of the metadata store is no pause, because no
    leader is elected without the store.
    """

    def __init__(
        self,
        catch_up: Callable[[], Awaitable[None]],
        limit_ms: int,
        clock: Clock,
        timers: Timers,
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._read_latest = catch_up
        self._limit_s = limit_ms / 1000
        self._now_s = clock.monotonic_s
        self._timers = timers
        self._spawn = spawn
        self._awake_until_s = 0.0
        self._is_catching_up = False

    def start(self) -> None:
        """Start the detection. The process counts as suspended until this method is called."""
        self._awake_until_s = self._now_s() + self._limit_s
        self._timers.call_later(self._limit_s / TICKS_IN_LIMIT, self._tick)

    def is_awake(self) -> bool:
        """True if this process was not suspended since it last read the latest metadata.

        Otherwise this method starts a task that reads the latest metadata. The broker calls this method for each
        partition of a request, so it must be cheap.
        """
        return self._now_s() <= self._awake_until_s or self._falls_asleep()

    def _falls_asleep(self) -> bool:
        if not self._is_catching_up:
            self._is_catching_up = True
            log.warning("this process was suspended; before it answers clients, it checks which brokers lead now")
            self._spawn(self._catch_up())
        return False

    def _tick(self) -> None:
        if self.is_awake():
            self._awake_until_s = self._now_s() + self._limit_s
        self._timers.call_later(self._limit_s / TICKS_IN_LIMIT, self._tick)

    async def _catch_up(self) -> None:
        await self._read_latest()
        self._is_catching_up = False
        self._awake_until_s = self._now_s() + self._limit_s
