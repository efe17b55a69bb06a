"""The requests of a closed connection are dropped: fetches that wait at partitions, and tasks."""

import asyncio
import gc
import struct
from collections.abc import Awaitable, Callable
from socket import SHUT_WR, socket
from types import SimpleNamespace
from typing import Any

import pytest
import test_slow_clients as slow
from fetched_broker import MANY_PARTITIONS, VERSION, FetchedBroker
from test_connection import connected, framed
from test_connection_limits import NO_LIMITS, connect
from test_late_answers import turns

from barnabas_broker.handlers import fetch
from barnabas_broker.handlers.channel import answer_of
from barnabas_broker.server.dispatch import Dispatcher
from barnabas_broker.server.listener import IDLE_CHECKS, Listener, SocketSettings
from barnabas_broker.wire.messages import HeartbeatResponse

FETCH, HEARTBEAT = 1, 12
WEEKS_MS = 2**31 - 1


def fetches(*, collected: bool = True) -> int:
    """Return how many fetches of consumers are in memory."""
    if collected:
        gc.collect()
    return sum(isinstance(each, fetch.ConsumerFetch) for each in gc.get_objects())


def asked(world: FetchedBroker) -> bytes:
    """A fetch that waits for weeks, as a client sends it."""
    return framed(struct.pack(">hhihb", FETCH, VERSION, 1, -1, 0) + world.request(max_wait_ms=WEEKS_MS))


def dispatcher(world: FetchedBroker) -> Dispatcher:
    return Dispatcher(world.handler_environment, {FETCH: fetch.handle}, lambda key: None)  # type: ignore[arg-type, return-value]


async def _closed(partitions: int, until: Callable[[FetchedBroker], bool]) -> None:
    world = FetchedBroker(partitions)
    async with connected(dispatcher(world)) as (connection, _, writer):  # type: ignore[arg-type]
        writer.write(asked(world))
        await turns(lambda: until(world))
        assert fetches() == 1
        connection.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not any(partition.waiters.waiting for partition in world.partitions)
        await turns(lambda: fetches() == 0)


async def test_a_waiting_fetch_is_dropped_when_its_connection_closes() -> None:
    await _closed(3, lambda world: bool(world.partitions[0].waiters.waiting))


async def test_a_waiting_fetch_of_many_partitions_is_dropped_when_its_connection_closes() -> None:
    await _closed(MANY_PARTITIONS, lambda world: bool(world.partitions[0].waiters.waiting))


async def test_a_fetch_of_many_partitions_is_dropped_if_its_connection_closes_between_its_slices() -> None:
    await _closed(MANY_PARTITIONS, lambda world: 0 < world.reads < MANY_PARTITIONS)


def test_an_answered_fetch_is_freed_without_the_garbage_collector() -> None:
    async def run() -> None:
        world = FetchedBroker(3)
        world.fetch()
        assert fetches() == 1
        for partition in world.partitions:
            partition.leader = None
            partition.waiters.mark()
        await turns(lambda: world.response is not None)
        await asyncio.sleep(0)
        assert fetches(collected=False) == 0

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()


async def test_the_fetches_of_other_clients_keep_waiting_when_a_connection_closes() -> None:
    world = FetchedBroker(1)
    dispatch = dispatcher(world)
    async with (
        connected(dispatch) as (gone, _, gone_writer),  # type: ignore[arg-type]
        connected(dispatch) as (_, reader, writer),  # type: ignore[arg-type]
    ):
        gone_writer.write(asked(world))
        writer.write(asked(world))
        await turns(lambda: len(world.partitions[0].waiters.waiting) == 2)
        gone.close()
        assert len(world.partitions[0].waiters.waiting) == 1
        world.partitions[0].leader = None
        world.partitions[0].waiters.mark()
        assert await reader.read(4)
        assert fetches() == 0


class Coordinator:
    """A coordinator that answers when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[Any], object]] = []

    def handle(self, *_: object) -> Awaitable[Any]:
        waiting: Any = answer_of(self.waiting.append)
        return waiting  # type: ignore[no-any-return]


async def test_a_request_that_waits_for_a_group_is_cancelled_when_its_connection_closes() -> None:
    coordinator = Coordinator()
    environment = SimpleNamespace(quotas=SimpleNamespace(are_set=False))
    dispatch = Dispatcher(environment, {}, lambda key: coordinator.handle)  # type: ignore[arg-type]
    async with connected(dispatch) as (connection, _, writer):  # type: ignore[arg-type]
        writer.write(framed(struct.pack(">hhihhih", HEARTBEAT, 0, 1, -1, 0, 0, 0)))
        await turns(lambda: bool(coordinator.waiting))
        assert len(dispatch._tasks) == 1
        connection.close()
        await turns(lambda: not dispatch._tasks)
        coordinator.waiting[0](HeartbeatResponse(throttle_time_ms=0, error_code=0))


class Listening:
    """A listener, and a client whose fetch waits."""

    def __init__(self, idle_s_max: float | None) -> None:
        self.world = FetchedBroker(1)
        settings = SocketSettings(1_000_000, 64_000_000, idle_s_max)
        self.listener = Listener(asyncio.get_running_loop(), dispatcher(self.world), settings, lambda: NO_LIMITS)

    async def begin(self) -> socket:
        port = self.listener.bind("CLIENTS", "127.0.0.1", 0)
        self.listener.start()
        client = await connect(port)
        await asyncio.get_running_loop().sock_sendall(client, asked(self.world))
        await turns(lambda: bool(self.world.partitions[0].waiters.waiting))
        return client

    def look(self, times: int) -> None:
        for _ in range(times):
            self.listener._close_idle()

    @property
    def waits(self) -> bool:
        return bool(self.world.partitions[0].waiters.waiting)


async def _idle(idle_s_max: float | None, *, ends_its_side: bool) -> bool:
    """True if the fetch still waits after the time in which idle connections are closed."""
    running = Listening(idle_s_max)
    try:
        client = await running.begin()
        if ends_its_side:
            client.shutdown(SHUT_WR)
            (connection,) = running.listener.connections
            await turns(connection.has_ended)
        running.look(IDLE_CHECKS + 1)
        assert running.waits, "the fetch still has time to be answered"
        running.look(1)
        client.close()
        return running.waits
    finally:
        running.listener.close()


@pytest.mark.parametrize("ends_its_side", [True, False])
async def test_a_connection_whose_fetch_waits_longer_than_the_idle_limit_is_closed_with_its_fetch(
    ends_its_side: bool,
) -> None:
    assert not await _idle(600.0, ends_its_side=ends_its_side)


async def test_without_an_idle_limit_only_a_half_closed_connection_is_closed() -> None:
    assert await _idle(None, ends_its_side=False)
    assert not await _idle(None, ends_its_side=True)


async def test_a_half_closed_connection_gets_an_answer_that_comes_in_time() -> None:
    running = Listening(None)
    try:
        client = await running.begin()
        client.shutdown(SHUT_WR)
        running.look(IDLE_CHECKS)
        running.world.partitions[0].leader = None
        running.world.partitions[0].waiters.mark()
        assert await asyncio.get_running_loop().sock_recv(client, 100)
        client.close()
    finally:
        running.listener.close()


@pytest.mark.parametrize("behind", [(), (b"small",), (b"small", b"late")])
async def test_a_closed_client_is_noticed_without_an_idle_limit_even_while_answers_are_outstanding(
    behind: tuple[bytes, ...],
) -> None:
    """A Produce may wait for weeks, and the answers to later requests wait for its own."""
    bodies = (b"late", *behind)
    async with slow.listening(idle_s_max=None) as (listener, port):
        _, writer = await slow.connect(port)
        writer.write(b"".join(map(framed, bodies)))
        await slow.until(lambda: len(listener.connections) == 1)
        (connection,) = listener.connections
        await slow.until(lambda: len(connection.answers._late) == len(bodies))
        writer.close()
        await slow.until(lambda: not connection.waits_for_client)
        for _ in range(IDLE_CHECKS):
            listener._close_idle()
        assert not connection.is_closed, "the client may still wait for its answer"
        listener._close_idle()
        listener._close_idle()
        assert connection.is_closed
