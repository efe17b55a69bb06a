"""Spread long work over several turns of the event loop, so that other tasks run in between.

The time of a turn is limited. The number of items is limited, too, because in a simulation the clock stands still
during a turn. Between two turns anything may change, so an item must be checked just before it is handled.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from itertools import count
from types import coroutine
from typing import Final, TypeVar

from barnabas_core.clock import Clock, Timers
from barnabas_core.loop_turns import timed

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
FIRST_TURN_S: Final = 0.0005
"""The seconds after which a request first lets other tasks run; most requests end earlier."""
FETCHED_PARTITIONS: Final = 500
"""The maximum number of partitions that a fetch reads in one turn of the event loop, which takes about 5 ms."""
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
R = TypeVar("R")
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
