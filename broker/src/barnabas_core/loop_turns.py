"""Spread long work over several turns of the event loop, and record the longest piece of work in a turn.

Other tasks run between two turns. The time of a turn is limited. The number of items is limited, too, because in a
simulation the clock stands still during a turn. Between two turns anything may change, so an item must be checked just
before it is handled.

A long turn is noticed only when it has ended, too late to see what ran. Work that may take long therefore notes its
name and its time. A process has one event loop, hence one global value. Without a clock, as in a simulation, nothing is
measured.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import partial, wraps
from itertools import count
from math import inf
from types import coroutine
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from barnabas_core.clock import Clock, Timers

P = ParamSpec("P")
R = TypeVar("R")

NOTHING_NAMED: Final = "other"
REQUESTS_S: Final = 0.008
"""The time limit in seconds for the requests of all connections in one turn; the rest wait for the next turn."""
SHORT_S: Final = 0.001
"""The limit in seconds: the longest work in a turn of the event loop is recorded only if it takes longer."""


class LongestPart:
    """The longest piece of work in the current turn of the event loop.

    Hot paths that measure their duration anyway set `seconds` and `what` directly instead of calling `took`.
    """

    __slots__ = ("now_s", "seconds", "what")

    def __init__(self) -> None:
        self.now_s: Callable[[], float] = float
        """The clock in seconds; it always returns 0.0 until the broker replaces it to measure the turns."""
        self.seconds = SHORT_S
        """The seconds of the longest piece of work in this turn, or SHORT_S if none has taken longer."""
        self.what = NOTHING_NAMED

    def took(self, what: str, seconds: float) -> None:
        """Note that the work `what` took `seconds`, if it is the longest of this turn and longer than SHORT_S."""
        if seconds > self.seconds:
            self.seconds = seconds
            self.what = what


LONGEST_PART: Final = LongestPart()


class Turn(NamedTuple):
    """A finished turn (iteration) of the event loop.

    `cpu_s` is the CPU time of the turn, which is less than `seconds` if the process waited for a processor.
    """

    ended_s: float
    seconds: float
    cpu_s: float
    what: str
    """A short label of the code that took most of the turn."""


class LoopShare:
    """The time at which requests have used up their share of the current turn of the event loop.

    The event loop's selector sets `ends_s` when a turn begins.
    """

    __slots__ = ("ends_s", "now_s", "seconds")

    def __init__(self) -> None:
        self.now_s: Callable[[], float] = float
        """The clock in seconds; it always returns 0.0 until the broker replaces it to measure the turns."""
        self.seconds = REQUESTS_S
        self.ends_s = inf
        """The end of the share; infinite where the turns are not measured, such as in a simulation."""

    def is_used_up(self) -> bool:
        """True if requests should wait for the next turn."""
        return self.now_s() > self.ends_s

    def charge(self, seconds: float) -> None:
        """Count work that begins in the next turn, because a request of this turn has started it."""
        self.ends_s -= seconds

    def extend(self, seconds: float) -> None:
        """Leave at least so many seconds of the share from now on."""
        self.ends_s = max(self.ends_s, self.now_s() + seconds)


LOOP_SHARE: Final = LoopShare()


def timed(what: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that times a function that may take long and is called rarely."""

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


# The constants below limit the work in one turn of the event loop, for the whole broker.

THINGS_MAX: Final = 256
LASTS_S: Final = 0.004
"""The time limit in seconds for long work in one turn of the event loop; it is enough to check about 10,000 items."""
CONNECTION_S: Final = 0.005
"""The time limit in seconds for the pipelined requests of one connection, before other connections have their turn."""
LARGE_REQUEST_BYTES: Final = 4 * 1024
"""The size of a request above which decoding, checking of rights, refusing and encoding take turns."""
STEP_ELEMENTS: Final = 8
"""The number of array elements of a large request that are handled between two checks of the turn's budget."""
FREED_AT_ONCE: Final = 1_000
"""The number of elements of a request or response that are freed in one turn; more of them are freed in several turns.

Freeing an element takes about 0.5 µs, an error as its outcome 1 µs, and twice that on a busy machine.
"""
FIRST_TURN_S: Final = 0.0005
"""The seconds after which a request first lets other tasks run; most requests end earlier."""
LARGE_FETCH_BYTES: Final = 16 * 1024
"""The size of the body of a Fetch request above which it takes turns.

A smaller one has at most about 900 topics, or 500 partitions since v12, which take about 5 ms.
"""
ENCODED_PARTITIONS: Final = 300
"""The maximum number of partitions encoded in one turn of the event loop for a Metadata response: about 8 ms."""
MADE_PARTITIONS: Final = 8
MADE_PARTITIONS_S: Final = 0.002
"""The time limit in seconds for creating partitions in one turn; each needs a directory and a file on a slow disk."""
COUNTED_PARTITIONS: Final = 500
METRIC_SAMPLES: Final = 500
COMMITTED_OFFSETS: Final = 2_000
"""The maximum number of offsets that one commit to a group has; a larger request makes several commits.

A commit of so many offsets takes about 8 ms, and its append 6 ms.
"""
LEAVING_MEMBERS: Final = 1_000
"""The maximum number of members that leave a group in one turn of the event loop, which takes about 5 ms."""
GROUP_OFFSETS: Final = 1_000
"""The maximum number of committed offsets, or of transactional ids, read in one turn to build the metrics page."""
REPORTED_LOGS: Final = 256
"""The number of logs whose end offsets one turn of the event loop reports."""
OUTCOMES: Final = 1_000
"""The number of outcomes of a request's items that one turn of the event loop puts together, in less than a ms."""
WRITTEN_ITEMS: Final = 100
"""The maximum number of items, such as topics, that one metadata transaction changes.

A transaction takes about 10 ms if each item has few partitions.
"""
WRITTEN_PARTITIONS: Final = 2_000
"""The maximum number of partitions that one metadata transaction changes, which takes about 15 ms.

A single topic with more partitions is still changed in one transaction.
"""
IMAGE_DOCUMENTS: Final = 200
"""The maximum number of documents from the store that one turn of the event loop applies to the metadata image.

The turn takes about 10 ms if each document describes a single partition.
"""
IMAGE_BYTES: Final = 32 * 1024
"""The maximum bytes of documents from the store that one turn of the event loop applies to the metadata image.

The limit corresponds to 500 to 800 partitions. A single document may be larger.
"""
ACCEPTED_CONNECTIONS: Final = 128
ACCEPTED_WHILE_BEHIND: Final = 16
"""The maximum number of connections that one turn of the event loop accepts while others wait for their turn.

A turn closes 50 to 100 connections, so those that are closed at once do not pile up.
"""
WOKEN_CONNECTIONS: Final = 16
"""The maximum number of connections that one turn of the event loop resumes when memory for requests becomes free.

Resuming them takes about 2 ms.
"""
SENT_BYTES: Final = 256 * 1024
"""The maximum bytes sent on a connection per turn, so that a fetch of 6 MB does not delay small produce requests."""
MOVED_BYTES: Final = 8 * 1024 * 1024
"""The maximum bytes of an incomplete request that one turn copies to a larger buffer, which takes about 8 ms."""
RECEIVED_BYTES: Final = 1024 * 1024
"""The maximum bytes received per turn on one link to another broker."""
DECRYPTED_BYTES: Final = 1024 * 1024
"""The maximum bytes decrypted on a connection per turn; a large request could otherwise extend the turn."""
APPENDED_BYTES: Final = 4 * 1024 * 1024
"""The maximum bytes of fetched records that a follower appends in one turn; few fetches have more."""

T = TypeVar("T")
InSteps = Generator[int, None, T]
"""Work in short steps. Each step yields the bytes of memory that it has taken, and the last one returns the result."""


def at_once(steps: InSteps[T]) -> T:
    """Take all steps now, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def in_steps(things: Iterable[T], make: Callable[[T], R]) -> InSteps[list[R]]:
    """Return `make(thing)` for each item, in steps of a few items."""
    made = []
    for number, thing in enumerate(things):
        made.append(make(thing))
        if number % STEP_ELEMENTS == 0:
            yield 0
    return made


def flat_in_steps(things: Iterable[T], inner: Callable[[T], Iterable[R]]) -> InSteps[list[R]]:
    """Return the inner items of all items, in steps of a few; an item without inner items counts as one."""
    made: list[R] = []
    steps = count(1)
    for thing in things:
        for each in inner(thing):
            made.append(each)
            if next(steps) % STEP_ELEMENTS == 0:
                yield 0
        if next(steps) % STEP_ELEMENTS == 0:
            yield 0
    return made


def slices(things: Sequence[T], size: Callable[[T], int], things_max: int, size_max: int) -> Iterator[Sequence[T]]:
    """Yield slices with at most `things_max` items, and at most `size_max` as the sum of `size(item)`.

    An item that is larger than `size_max` is a slice of its own.
    """
    begin, total = 0, 0
    for end, thing in enumerate(things):
        total += size(thing)
        if end > begin and (end - begin >= things_max or total > size_max):
            yield things[begin:end]
            begin, total = end, size(thing)
    if begin < len(things):
        yield things[begin:]


@coroutine
def next_turn() -> Generator[None, None, None]:
    """Wait until all other tasks that are ready have run once.

    The function needs an event loop that runs ready tasks in order, such as those of asyncio and of the simulation.
    """
    yield


async def in_turns(things: Iterable[T], a_turn: int) -> AsyncIterator[T]:
    """Yield all items, at most `a_turn` in each turn of the event loop; for items of equal cost."""
    for number, thing in enumerate(things):
        if number and number % a_turn == 0:
            await next_turn()
        yield thing


class FairTurn:
    """The budget of one turn of the event loop: at most `things_max` items, and no new item after `lasts_s` seconds.

    The first item of a turn is always allowed.
    """

    __slots__ = ("_clock", "_ends_s", "_lasts_s", "_left", "_things_max")

    def __init__(self, clock: Clock, things_max: int = THINGS_MAX, lasts_s: float = LASTS_S) -> None:
        self._clock = clock
        self._things_max = things_max
        self._lasts_s = lasts_s
        self.begin()

    def begin(self) -> None:
        """Begin the next turn with a full budget."""
        self._left = self._things_max
        self._ends_s = self._clock.monotonic_s() + self._lasts_s

    def take(self) -> bool:
        """True if the budget allows another item in this turn; the item is then counted."""
        if self._left <= 0 or (self._left < self._things_max and self._clock.monotonic_s() >= self._ends_s):
            return False
        self._left -= 1
        return True

    async def give_way(self) -> None:
        """Count an item in the turn's budget; if no budget is left, wait for the next turn of the event loop first."""
        if not self.take():
            await next_turn()
            self.begin()
            self.take()

    def over(self, things: Iterable[T]) -> AsyncIterator[T]:
        """Yield all items; wait for the next turn of the event loop each time that the budget of a turn is used up."""
        return self.along(list(things))

    async def along(self, things: Iterable[T]) -> AsyncIterator[T]:
        """Yield all items as `over` does, without a copy, so nothing may change `things` meanwhile.

        A copy of the items of a large dict makes very many tuples in one turn.
        """
        for thing in things:
            await self.give_way()
            yield thing


class FairRounds:
    """Call `work` for each item of `things()`, as many items per turn of the event loop as a FairTurn allows.

    `begin` starts a pass over all items. The passes run in callbacks of the event loop, not in a task. However often
    `begin` is called during a pass, only one more pass follows.
    """

    __slots__ = ("_again", "_clock", "_left", "_things", "_timers", "_work")

    def __init__(
        self, clock: Clock, timers: Timers, things: Callable[[], Iterable[T]], work: Callable[[T], object]
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._things: Callable[[], Iterable[object]] = things
        self._work: Callable[..., object] = work
        self._left: list[object] = []
        self._again = False

    @property
    def is_under_way(self) -> bool:
        """True if items remain for later turns of the event loop."""
        return bool(self._left)

    def begin(self) -> None:
        """Begin a pass over all items, and handle the first ones at once.

        If a pass is under way, another pass over all items follows.
        """
        if self._left:
            self._again = True
            return
        self._left = list(self._things())
        self._left.reverse()
        self._slice()

    def stop(self) -> None:
        """Drop the remaining items of the pass, and the next pass if a call of `begin` requested one."""
        self._left.clear()
        self._again = False

    @timed("round over partitions")
    def _slice(self) -> None:
        turn = FairTurn(self._clock)
        while self._left and turn.take():
            self._work(self._left.pop())
        if not self._left and self._again:
            self._again = False
            self._left = list(self._things())
            self._left.reverse()
        if self._left:
            self._timers.call_soon(self._slice)


class Steps:
    """The number of times that coroutines were resumed, such as after waiting for a thread, a store or their turn."""

    def __init__(self) -> None:
        self._taken = 0
        self._under_way = 0

    def progress(self) -> object:
        """Return a value that changes each time the event loop resumes an awaitable that was passed to `count`.

        While no call of `count` is running, each call of `progress` returns a new value, so that idle work does not
        appear to hang.
        """
        return self._taken if self._under_way else object()

    async def count(self, work: Awaitable[R]) -> R:
        """Await `work`, and count each time that the event loop resumes it; return its result or raise its error."""
        self._under_way += 1
        try:
            return await self._each_step(work)
        finally:
            self._under_way -= 1

    @coroutine
    def _each_step(self, work: Awaitable[R]) -> Generator[Any, None, R]:
        steps = work.__await__()
        go_on = steps.__next__
        while True:
            self._taken += 1
            try:
                awaited = go_on()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            try:
                yield awaited
            except BaseException as error:  # Pass on errors such as CancelledError, which `work` may handle.
                go_on = partial(steps.throw, error)
            else:
                go_on = steps.__next__
