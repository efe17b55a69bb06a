"""Many long responses: only one is continued in each turn, and together they stay below a limit of memory."""

import asyncio
import gc
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet

import pytest
from asked_in_turns import MANY, SlowClock

from barnabas_broker.handlers.channel import AnswerInTurns, Client, RequestContext
from barnabas_broker.handlers.large_responses import CloseConnection, LargeResponses, SharedTurn
from barnabas_broker.handlers.replicas import ELECTION_RESULTS
from barnabas_broker.wire.encoder import Encoded, decode_response, encode_in_steps
from barnabas_broker.wire.messages import DescribeConfigsResponse, ElectLeadersResponse
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import THINGS_MAX, at_once

CLIENTS = 8
ELEMENT_BYTES = 1_000
Result = DescribeConfigsResponse.DescribeConfigsResult
Elected = ElectLeadersResponse.ReplicaElectionResult
Partition = Elected.PartitionResult


class LoopTimers:
    """The timers of the running loop."""

    def call_soon(self, callback: Callable[[], object]) -> asyncio.Handle:
        return asyncio.get_running_loop().call_soon(callback)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, callback)


class World:
    """Clients with requests of the same size."""

    def __init__(self, bytes_max: int = CLIENTS * MANY * 2 * ELEMENT_BYTES, clients: int = CLIENTS) -> None:
        self.answers = LargeResponses(SlowClock(), LoopTimers(), bytes_max)
        self.made = [0] * clients
        self.ended: list[int] = []
        self.gone: set[int] = set()
        self.turns_left: WeakSet[SharedTurn] = WeakSet()
        self.tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        self.tasks = [asyncio.ensure_future(self._answer(client)) for client in range(len(self.made))]

    async def lose(self, clients: set[int]) -> list[int]:
        """Disconnect the clients after elements were made for all; return the elements made for each until then."""
        self.begin()
        for _ in range(CLIENTS):
            await asyncio.sleep(0)
        self.gone = clients
        return list(self.made)

    async def _answer(self, client: int) -> None:
        context = RequestContext(32, 4, Client("PLAINTEXT", "127.0.0.1:5"), lambda: client in self.gone)
        answer = AnswerInTurns(DescribeConfigsResponse, context, self.answers)
        self.turns_left.add(answer.turn)
        await answer.elements(("results",), range(MANY), lambda _: self._make(client))
        self.ended.append(client)

    def _make(self, client: int) -> Result:
        self.made[client] += 1
        name = "x" * ELEMENT_BYTES
        return Result(error_code=ErrorCode.NONE, error_message=None, resource_type=2, resource_name=name, configs=[])

    async def turns(self) -> list[list[int]]:
        """Run until all responses ended; return the elements made for each client in each turn of the loop."""
        turns = []
        while not all(task.done() for task in self.tasks):
            before = list(self.made)
            await asyncio.sleep(0)
            turns.append([now - then for now, then in zip(self.made, before, strict=True)])
        return turns


class Connections(World):
    """A world that closes only one connection on an error, as the dispatcher does."""

    async def _answer(self, client: int) -> None:
        with suppress(CloseConnection):
            await super()._answer(client)


async def test_one_of_many_responses_continues_in_each_turn_and_all_progress_equally() -> None:
    world = World()
    world.begin()
    first, *turns = await world.turns()
    assert first == [1] * CLIENTS
    assert world.made == [MANY] * CLIENTS
    assert max(len([made for made in turn if made]) for turn in turns) == 1
    half = [sum(column) for column in zip(*turns[: len(turns) // 2], strict=True)]
    assert max(half) - min(half) < MANY / 4


async def test_the_oldest_response_ends_first_if_all_use_too_much_memory() -> None:
    world = World(2 * MANY * ELEMENT_BYTES)
    world.begin()
    held = 0
    while not world.tasks[-1].done():
        await asyncio.sleep(0)
        held = max(held, sum(made for made in world.made if made < MANY))
    assert world.ended == list(range(CLIENTS))
    assert held <= 3 * MANY


async def test_a_response_that_becomes_too_large_closes_its_connection() -> None:
    world = World((MANY // 2) * ELEMENT_BYTES)
    world.begin()
    await world.turns()
    for task in world.tasks:
        with pytest.raises(CloseConnection, match="has more than 50000 bytes; request fewer elements at once"):
            task.result()
    assert max(world.made) < MANY


def test_an_element_with_very_many_inner_elements_is_encoded_in_the_steps_of_the_response() -> None:
    context = RequestContext(43, 2, Client("PLAINTEXT", "127.0.0.1:5"))
    answer = AnswerInTurns(ElectLeadersResponse, context, World().answers)
    partitions = [Partition(partition_id=number, error_message=None) for number in range(THINGS_MAX + 1)]
    topics = []
    for count in (THINGS_MAX, THINGS_MAX + 1):
        encoded = [answer.encoded((ELECTION_RESULTS, "partition_result"), each) for each in partitions[:count]]
        topics.append(answer.encoded((ELECTION_RESULTS,), Elected(topic="t", partition_result=encoded)))
    assert [isinstance(each, Encoded) for each in topics] == [True, False]
    frame = at_once(encode_in_steps(ElectLeadersResponse(replica_election_results=topics), 2, 1))
    decoded = decode_response("ElectLeadersResponse", 2, memoryview(frame)[4:]).replica_election_results
    assert decoded == [
        Elected(topic="t", partition_result=partitions[:THINGS_MAX]),
        Elected(topic="t", partition_result=partitions),
    ]


async def test_a_response_is_aborted_if_its_client_disconnects() -> None:
    world = World()
    made = await world.lose({1, 2})
    await world.turns()
    assert sorted(world.ended) == [0, *range(3, CLIENTS)]
    assert [world.made[client] for client in world.gone] == [made[client] for client in world.gone]
    for client in world.gone:
        with pytest.raises(CloseConnection, match="the client has disconnected"):
            world.tasks[client].result()


async def test_the_only_response_is_aborted_if_its_client_disconnects() -> None:
    world = World(clients=1)
    await world.lose({0})
    await world.turns()
    assert world.made[0] < MANY
    with pytest.raises(CloseConnection, match="the client has disconnected"):
        world.tasks[0].result()


def test_the_memory_of_an_aborted_response_is_freed_immediately() -> None:
    """Memory that only the garbage collector can free counts as used until it runs, which is rare."""

    async def run() -> None:
        world = Connections(2 * MANY * ELEMENT_BYTES)
        await world.lose({1, 2})
        await world.turns()
        assert len(world.ended) == CLIENTS - 2
        assert not list(world.turns_left)

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


async def test_a_cancelled_response_passes_its_turn_to_the_next() -> None:
    world = World()
    world.begin()
    await asyncio.sleep(0)
    world.tasks[1].cancel()
    await world.turns()
    assert sorted(world.ended) == [0, *range(2, CLIENTS)]
