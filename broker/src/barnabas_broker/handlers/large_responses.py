"""Read large requests and build large responses over many turns of the event loop, with bounded memory.

Each turn works on only one of them; otherwise a hundred of them would make each turn a hundred times as long.

The cache of topics in the encoded form of Metadata responses. Clients request the same topics repeatedly, and
encoding 2,000 partitions takes 50 ms. After a change of a topic all clients request the topic at once. Their
requests share one encoding: each request, in its turn on the event loop, encodes the next partitions, until the
topic is complete.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final, TypeVar
from weakref import WeakSet, WeakValueDictionary

import msgspec

from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TopicDocument
from barnabas_broker.wire.encoder import Encoded, encode_element
from barnabas_broker.wire.messages import MetadataResponse
from barnabas_core.clock import Clock, Timers
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import FIRST_TURN_S, FREED_AT_ONCE, STEP_ELEMENTS, FairTurn, InSteps, next_turn
from barnabas_core.topic_partition import is_internal


class CloseConnection(Exception):
    """The exception with which a handler closes the connection, for example after a failed Produce with acks=0.

    The message is logged as one line.
    """


BYTES_MAX: Final = 128 * 1024 * 1024
"""The maximum size of one response in bytes.

While the unfinished responses exceed this size in total, only the oldest one is continued, and the others wait.
"""
REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
"""The maximum memory in bytes that the elements of one request and of its refusals take."""

T = TypeVar("T")


class SharedTurn(FairTurn):
    """The turns of the event loop in which one large response is built; other large responses are built in between."""

    def __init__(
        self,
        clock: Clock,
        number: int,
        bytes_max: int,
        is_gone: Callable[[], bool],
        wait: Callable[["SharedTurn"], Awaitable[None]],
        wait_to_free: Callable[[], Awaitable[None]],
    ) -> None:
        super().__init__(clock)
        self.begin_first()
        self._bytes_max = bytes_max
        self._wait = wait
        self._wait_to_free = wait_to_free
        self.number = number
        """The number of the response; later responses have larger numbers."""
        self.is_gone = is_gone
        self.spent_s = 0.0
        """The seconds of the turns that have ended."""
        self.held_bytes = 0
        self._taken_bytes = 0
        self.kept: list[Any] = []
        """Elements of the request, of its outcomes and of the response. They are freed in turns at the end.

        Without these references the end of the handler would free all of them in one turn.
        """

    def keep_outcomes(self, outcomes: Mapping[Any, Any]) -> None:
        """Keep what a request is about, and its outcomes, such as errors, to be freed in turns at the end."""
        self.kept += outcomes
        self.kept += outcomes.values()

    async def free(self) -> None:
        """Free what was kept, in turns, also if the client has disconnected."""
        if len(self.kept) <= FREED_AT_ONCE:
            self.kept.clear()
        while self.kept:
            await self._wait_to_free()
            self.begin()
            while self.kept and self.take():
                del self.kept[-STEP_ELEMENTS:]

    def begin_first(self) -> None:
        """Begin the first turn, which is short, because it does not wait for others."""
        self._left = self._things_max
        self._ends_s = self._clock.monotonic_s() + FIRST_TURN_S

    def holds(self, response_bytes: int) -> None:
        """Note the size of the response so far. Raises CloseConnection if the response is too large."""
        self.held_bytes = self._taken_bytes + response_bytes
        if response_bytes > self._bytes_max:
            raise CloseConnection(f"the response has more than {self._bytes_max} bytes; request fewer elements at once")

    async def run(self, steps: InSteps[T]) -> T:
        """Take the steps of a generator, as many in each turn as the budget allows, and return its result.

        Raises CloseConnection if the client has disconnected, or if the steps take too much memory.
        """
        while True:
            await self.give_way()
            try:
                self._takes(next(steps))
            except StopIteration as end:
                result: T = end.value
                return result

    def _takes(self, size_bytes: int) -> None:
        self._taken_bytes += size_bytes
        self.held_bytes += size_bytes
        if self._taken_bytes > REQUEST_BYTES_MAX:
            raise CloseConnection(f"a request takes more than {REQUEST_BYTES_MAX} bytes; send fewer elements at once")

    async def give_way(self) -> None:
        """Count an item of the response in the current turn; if the turn is used up, first wait for the next turn.

        Raises CloseConnection if the client has disconnected.
        """
        if not self.take():
            self.spent_s += min(self._lasts_s, self._clock.monotonic_s() - self._ends_s + self._lasts_s)
            await self._wait(self)
            self.begin()
            self.take()


class OneATurn:
    """Let one of many long works go on in each turn of the event loop, the one that has waited longest."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def next_turn(self) -> None:
        """Wait for a turn of the event loop that no other work has got from here."""
        async with self._lock:
            await next_turn()

    async def slices(self, things: Iterable[T], a_turn: int) -> AsyncIterator[T]:
        """Yield all items, at most `a_turn` in each of these turns; for items of equal cost."""
        for number, thing in enumerate(things):
            if number % a_turn == 0:
                await self.next_turn()
            yield thing


class _Waiting(msgspec.Struct, frozen=True):
    turn: SharedTurn
    is_there: asyncio.Future[str | None]
    """The future for which a large response waits. With the result None the response continues; a text is the reason to
    close the connection. The reason is not an exception, because the traceback of an exception would keep the response
    in memory."""

    def wake(self, why: str | None = None) -> None:
        if not self.is_there.done():  # The future is done if its task was cancelled.
            self.is_there.set_result(why)


class LargeResponses:
    """The large responses that a broker builds; each turn of the event loop works on one of them."""

    def __init__(self, clock: Clock, timers: Timers, bytes_max: int = BYTES_MAX) -> None:
        self._clock = clock
        self._timers = timers
        self._bytes_max = bytes_max
        self._numbers = count()
        self._freeing = OneATurn()
        self._turns: WeakSet[SharedTurn] = WeakSet()
        self._waiting: list[_Waiting] = []
        self._wakes_soon = False

    def turn(self, is_gone: Callable[[], bool] = lambda: False) -> SharedTurn:
        """Return a SharedTurn, with which a new response reports its size and waits for its turns on the event loop."""
        turn = SharedTurn(
            self._clock, next(self._numbers), self._bytes_max, is_gone, self._next_turn, self._freeing.next_turn
        )
        self._turns.add(turn)
        return turn

    async def _next_turn(self, turn: SharedTurn) -> None:
        if len(self._turns) == 1 and not turn.is_gone():
            await next_turn()
            return
        waiting = _Waiting(turn, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._wake_soon()
        why = await waiting.is_there
        if why is not None:
            raise CloseConnection(why)

    def _wake_soon(self) -> None:
        if self._waiting and not self._wakes_soon:
            self._wakes_soon = True
            self._timers.call_soon(self._wake)

    def _wake(self) -> None:
        self._wakes_soon = False
        chosen = self._chosen(holds_too_much=sum(turn.held_bytes for turn in self._turns) > self._bytes_max)
        if chosen is not None:
            chosen.wake()
        self._wake_soon()

    def _chosen(self, *, holds_too_much: bool) -> _Waiting | None:
        """Remove and return the response to continue: the one that has waited longest; None if no response waits.

        If the responses hold too much memory (`holds_too_much`), choose the response that was begun first. Responses of
        disconnected clients end with CloseConnection.
        """
        while self._waiting:
            chosen = self._waiting.pop(self._oldest() if holds_too_much else 0)
            if not chosen.turn.is_gone():
                return chosen
            chosen.wake("the client has disconnected")
        return None

    def _oldest(self) -> int:
        return min(range(len(self._waiting)), key=lambda place: self._waiting[place].turn.number)


KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""The maximum size of all cached topics; the oldest are dropped first. A partition with three replicas takes 50
bytes."""
NOT_ASKED: Final = frozenset({31})
"""The authorized operations if the client did not ask for them, as in Kafka.

Only bit 31 is set, so the encoded bit field is the smallest int32.
"""
MESSAGE: Final = "MetadataResponse"

TopicResponse = MetadataResponse.MetadataResponseTopic
PartitionResponse = TopicResponse.MetadataResponsePartition


class Form(msgspec.Struct, frozen=True):
    """The values on which the encoding of a topic depends besides the topic: API version, operations, live brokers."""

    version: int
    operations: frozenset[int]
    """The codes of the operations that the client may perform on the topic."""
    live: frozenset[int]
    """The ids of the live brokers."""


class EncodedTopic(msgspec.Struct, frozen=True):
    """A topic in encoded form, as an element of a Metadata response."""

    document: TopicDocument
    live: frozenset[int]
    encoded: Encoded


class _BegunTopic:
    """A topic that is being encoded; all requests that need the encoded topic work on the same object."""

    def __init__(self, document: TopicDocument, form: Form) -> None:
        self.document = document
        self.form = form
        self.partitions: list[Encoded] = []
        self.whole: EncodedTopic | None = None

    def is_of(self, document: TopicDocument, form: Form) -> bool:
        """True if this object encodes exactly `document` with `form`, not an older version of the topic."""
        return self.document is document and self.form == form


FindTopic = Callable[[str], tuple[TopicDocument, Form] | None]
"""A function that takes a topic name, and returns the topic and the values on which its encoding depends (`Form`).

The function returns None if the topic does not exist.
"""
_Key = tuple[str, int, frozenset[int]]


class EncodedTopics:
    """The broker's cache of encoded topics."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: dict[_Key, EncodedTopic] = {}
        self._begun: WeakValueDictionary[_Key, _BegunTopic] = WeakValueDictionary()
        self.bytes_kept = 0
        self.partitions_encoded = 0

    def find(self, document: TopicDocument, form: Form) -> EncodedTopic | None:
        """Return the cached encoding of a topic, or None if it is missing or outdated."""
        kept = self._kept.get(_key(document, form))
        return kept if kept is not None and is_as(kept, document, form) else None

    def encode(self, document: TopicDocument, form: Form) -> EncodedTopic:
        """Return the cached encoding of a topic; if it is missing or outdated, encode the topic and cache it."""
        found = self.find(document, form)
        if found is None:
            partitions = [self._partition(document, form, index) for index in range(len(document.partitions))]
            found = _encode_topic(document, form, partitions)
            self._keep(_key(document, form), found)
        return found

    async def prepare(self, names: Iterable[str], lookup: FindTopic, turn: FairTurn) -> dict[str, EncodedTopic]:
        """Return the existing topics in encoded form, by name; encode uncached topics in turns of the event loop."""
        prepared: dict[str, EncodedTopic] = {}
        for name in names:
            await turn.give_way()
            found = lookup(name)
            if found is not None:
                prepared[name] = self.find(*found) or await self._make(*found, lookup, turn)
        return prepared

    async def _make(self, document: TopicDocument, form: Form, lookup: FindTopic, turn: FairTurn) -> EncodedTopic:
        begun = self._begun.get(_key(document, form))
        if begun is None or not begun.is_of(document, form):
            begun = self._begun[_key(document, form)] = _BegunTopic(document, form)
        while begun.whole is None:
            self._go_on(begun, lookup)
            await turn.give_way()
        return begun.whole

    def _go_on(self, begun: _BegunTopic, lookup: FindTopic) -> None:
        """Encode the next partition; after the last partition, store the encoded topic in `whole`.

        Cache the encoded topic, too, unless the topic or the set of live brokers has changed meanwhile.
        """
        document, form, partitions = begun.document, begun.form, begun.partitions
        if len(partitions) < len(document.partitions):
            partitions.append(self._partition(document, form, len(partitions)))
        if len(partitions) == len(document.partitions):
            begun.whole = _encode_topic(document, form, partitions)
            now = lookup(document.name)
            if now is not None and is_as(begun.whole, *now):
                self._keep(_key(document, form), begun.whole)

    def _partition(self, document: TopicDocument, form: Form, index: int) -> Encoded:
        self.partitions_encoded += 1
        partition = _partition(index, document.partitions[index], form.live)
        return encode_element(MESSAGE, ("topics", "partitions"), form.version, partition)

    def _keep(self, key: _Key, kept: EncodedTopic) -> None:
        self._forget(key)
        self._kept[key] = kept
        self.bytes_kept += len(kept.encoded)
        while self.bytes_kept > self._bytes_max:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        kept = self._kept.pop(key, None)
        self.bytes_kept -= 0 if kept is None else len(kept.encoded)


def is_as(encoded: EncodedTopic, document: TopicDocument, form: Form) -> bool:
    """True if neither the topic nor the set of live brokers has changed since the encoding."""
    return encoded.document is document and encoded.live == form.live


def _encode_topic(document: TopicDocument, form: Form, partitions: list[Encoded]) -> EncodedTopic:
    response = TopicResponse(
        name=document.name,
        topic_id=document.topic_id,
        is_internal=is_internal(document.name),
        partitions=partitions,  # type: ignore[arg-type]  # encoded elements stand for them
        authorized_operations=set(form.operations),
    )
    return EncodedTopic(document, form.live, encode_element(MESSAGE, ("topics",), form.version, response))


def _key(document: TopicDocument, form: Form) -> _Key:
    return document.name, form.version, form.operations


def _partition(index: int, state: PartitionState, live: frozenset[int]) -> PartitionResponse:
    return PartitionResponse(
        error_code=ErrorCode.NONE if state.leader in live else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if state.leader in live else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in live],
    )
