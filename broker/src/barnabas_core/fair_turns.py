"""Work over many things in slices: some in each turn of the loop, so that other tasks get turns between.

One bound is by time and one by number, for a simulated clock stands still within a turn. Such work looks at each thing
when its turn comes, not before: meanwhile it may be gone.
"""

from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from types import coroutine
from typing import Final, TypeVar

from barnabas_core.clock import Clock, Timers
from barnabas_core.loop_turns import timed

# The most that one turn of the loop may take: all budgets of the broker.

THINGS_MAX: Final = 256
LASTS_S: Final = 0.004
"""The length of a rare turn: short enough for other tasks, and long enough for a round of 10,000 things."""
CONNECTION_S: Final = 0.005
"""The seconds for the requests that one client has sent at once: then it is the others' turn."""
FIRST_TURN_S: Final = 0.0005
"""The length of a request's first turn, which most requests need only; many may come in one turn of the loop."""
FETCHED_PARTITIONS: Final = 500
"""Read for one fetch: 5 ms."""
ENCODED_PARTITIONS: Final = 300
"""Encoded for Metadata: 8 ms."""
MADE_PARTITIONS: Final = 8
MADE_PARTITIONS_S: Final = 0.002
"""The seconds for new partitions; so few, because each is a directory and a file, and some disks are slow."""
COUNTED_PARTITIONS: Final = 500
METRIC_SAMPLES: Final = 500
GROUP_OFFSETS: Final = 1_000
"""The committed offsets in one slice of the metrics of groups."""
REPORTED_LOGS: Final = 256
"""The logs in one slice of the reports of log ends."""
WRITTEN_ITEMS: Final = 100
"""Decided, and written in one transaction: about 10 ms for topics of a few partitions."""
WRITTEN_PARTITIONS: Final = 2_000
"""The partitions of those items: 15 ms. One item may have more."""
IMAGE_DOCUMENTS: Final = 200
"""Taken over into the image: about 10 ms for topics of a partition."""
IMAGE_BYTES: Final = 32 * 1024
"""The bytes of these documents, which grow with partitions: 500 to 800, about 10 ms. One may be larger."""
ACCEPTED_CONNECTIONS: Final = 128
WOKEN_CONNECTIONS: Final = 16
"""The connections that waited for memory. Each may copy a scratch buffer's worth: about 2 ms for all."""
SENT_BYTES: Final = 256 * 1024
"""The bytes sent on one connection, so that a fetch of 6 MB does not hold up small produces."""
RECEIVED_BYTES: Final = 1024 * 1024
"""The bytes received on one link to another broker."""
APPENDED_BYTES: Final = 4 * 1024 * 1024
"""The bytes that a follower appends of what it has fetched. Only one that is far behind gets more at once.

With smaller turns new records come before those that wait to be committed.
"""

T = TypeVar("T")


def slices(things: Sequence[T], size: Callable[[T], int], things_max: int, size_max: int) -> Iterator[Sequence[T]]:
    """Yield slices for one turn of the loop each, of one thing at least; for work whose parts cost alike."""
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
    """Return after all other tasks have had a turn, on any event loop."""
    yield


async def in_turns(things: Iterable[T], a_turn: int) -> AsyncIterator[T]:
    """Yield all things, at most `a_turn` in each turn of the loop; for work whose parts cost alike."""
    for number, thing in enumerate(things):
        if number and number % a_turn == 0:
            await next_turn()
        yield thing


class FairTurn:
    """The rest of one turn of the loop: `things_max` things, or those that begin within `lasts_s`; one at least."""

    __slots__ = ("_clock", "_ends_s", "_lasts_s", "_left", "_things_max")

    def __init__(self, clock: Clock, things_max: int = THINGS_MAX, lasts_s: float = LASTS_S) -> None:
        self._clock = clock
        self._things_max = things_max
        self._lasts_s = lasts_s
        self.begin()

    def begin(self) -> None:
        """Begin the next turn."""
        self._left = self._things_max
        self._ends_s = self._clock.monotonic_s() + self._lasts_s

    def take(self) -> bool:
        """True if one more thing may be done in this turn; it then counts as done."""
        if self._left <= 0 or (self._left < self._things_max and self._clock.monotonic_s() >= self._ends_s):
            return False
        self._left -= 1
        return True

    async def give_way(self) -> None:
        """Wait before each thing for the next turn, if this one is used up."""
        if not self.take():
            await next_turn()
            self.begin()
            self.take()

    async def over(self, things: Iterable[T]) -> AsyncIterator[T]:
        """Yield all things, in as many turns as they need."""
        for thing in list(things):
            await self.give_way()
            yield thing


class FairRounds:
    """Calls `work` on all of `things()`, some a turn, where no task waits for it.

    To begin while a round is under way means one more round after it, however often it is said.
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
        """True if some are left for the next turns."""
        return bool(self._left)

    def begin(self) -> None:
        """The first slice is taken at once."""
        if self._left:
            self._again = True
            return
        self._left = list(self._things())
        self._left.reverse()
        self._slice()

    def stop(self) -> None:
        """Leave out the rest of the round."""
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
