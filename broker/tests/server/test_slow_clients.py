"""Clients that send or read slowly hold little memory and do not delay others, over real sockets."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest

from barnabas_broker.app.wiring import socket_settings
from barnabas_broker.server import answers
from barnabas_broker.server import listener as server_listener
from barnabas_broker.server.answers import SlowClients
from barnabas_broker.server.connection import SCRATCH_BYTES, Connection
from barnabas_broker.server.connection_bounds import BufferPool, ConnectionLimits
from barnabas_broker.server.listener import IDLE_CHECKS, Listener, SocketSettings
from barnabas_broker.server.transport import PlainTransport
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import INT_MAX
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock

MIB = 1024 * 1024
REQUEST_BYTES_MAX = 4 * MIB
POOL_BYTES = 1 * MIB
NO_LIMITS = ConnectionLimits(INT_MAX, INT_MAX, {}, INT_MAX)
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def echo(connection: Connection, buffer: memoryview, start: int, end: int) -> None:
    body = bytes(buffer[start:end])
    if body.startswith(b"large"):
        connection.answer([framed(bytes(8 * MIB))])
    elif body.startswith(b"late"):
        connection.defer(reads_on=True)
    elif body.startswith(b"mute"):
        connection.defer()
    else:
        connection.answer([framed(body)])


@asynccontextmanager
async def listening_at(*names: str, **settings: object) -> AsyncIterator[tuple[Listener, list[int]]]:
    given = {"request_bytes_max": REQUEST_BYTES_MAX, "queued_bytes_max": POOL_BYTES, "idle_s_max": 600.0, **settings}
    listener = Listener(asyncio.get_running_loop(), echo, SocketSettings(**given), lambda: NO_LIMITS)  # type: ignore[arg-type]
    ports = [listener.bind(name, "127.0.0.1", 0) for name in names]
    listener.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield listener, ports
    finally:
        listener.close()


@asynccontextmanager
async def listening(**settings: object) -> AsyncIterator[tuple[Listener, int]]:
    async with listening_at("PLAINTEXT", **settings) as (listener, (port,)):
        yield listener, port


@asynccontextmanager
async def listening_to_brokers_too() -> AsyncIterator[tuple[Listener, int, int]]:
    """Yield a listener, the port of clients, and the port between brokers."""
    async with listening_at("CLIENTS", "BROKERS", protected_listener="BROKERS") as (listener, (clients, brokers)):
        yield listener, clients, brokers


async def connect(port: int) -> Client:
    return await asyncio.open_connection("127.0.0.1", port)


async def ask(client: Client, body: bytes) -> bytes:
    client[1].write(framed(body))
    (size,) = struct.unpack(">i", await client[0].readexactly(4))
    return await client[0].readexactly(size)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


def _is_above(before: int, now: Callable[[], int]) -> bool:
    return now() > before


async def exhaust(listener: Listener, port: int) -> list[Client]:
    """Return clients that have begun requests of 1 MiB until the pool has no room."""
    clients: list[Client] = []
    while not listener.pool.is_exhausted:
        clients.append(await connect(port))
        clients[-1][1].write(struct.pack(">i", MIB) + bytes(100_000))
        had = listener.pool.bytes_in_use
        await until(partial(_is_above, had, lambda: listener.pool.bytes_in_use))
    return clients


async def test_a_request_with_five_received_bytes_takes_no_buffer() -> None:
    async with listening() as (listener, port):
        clients = [await connect(port) for _ in range(500)]
        for _, writer in clients:
            writer.write(struct.pack(">i", 1000) + b"x")
        await until(lambda: sum(each.begun_bytes for each in listener.connections) == 2500)
        assert listener.pool.bytes_in_use == 0
        for client in clients:
            client[1].write(b"y" * 999)
        answers = [await client[0].readexactly(1004) for client in clients]
        assert all(answer[4:] == b"x" + b"y" * 999 for answer in answers)


async def test_requests_that_fit_into_the_scratch_buffer_are_served_while_the_pool_has_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "PATIENCE_S", 60.0)
    async with listening() as (listener, port):
        culprits = await exhaust(listener, port)
        client = await connect(port)
        assert await ask(client, b"small") == b"small"
        whole = bytes(SCRATCH_BYTES - 4)
        assert await ask(client, whole) == whole
        pieces = framed(b"p" * 200_000)
        for start in range(0, len(pieces), 30_000):
            client[1].write(pieces[start : start + 30_000])
            await client[1].drain()
            await asyncio.sleep(0.005)
        assert await client[0].readexactly(len(pieces)) == pieces
        assert listener.pool.is_exhausted
        await until(lambda: listener.pool.bytes_in_use <= POOL_BYTES + 256 * 1024)
        assert culprits


async def test_pipelined_requests_keep_their_order_while_the_pool_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PATIENCE_S", 60.0)
    async with listening() as (listener, port):
        culprits = await exhaust(listener, port)
        client = await connect(port)
        bodies = [b"%d" % number * (1 + 531 * (number % 7)) for number in range(400)]
        client[1].write(b"".join(map(framed, bodies)))
        for body in bodies:
            assert (await client[0].readexactly(4 + len(body)))[4:] == body
        assert listener.pool.is_exhausted
        assert culprits


async def test_all_requests_that_wait_for_memory_are_served_when_it_is_free() -> None:
    async with listening() as (listener, port):
        culprits = await exhaust(listener, port)
        clients = [await connect(port) for _ in range(60)]
        body = bytes(2 * SCRATCH_BYTES)
        answers = [asyncio.ensure_future(ask(client, body)) for client in clients]
        await until(lambda: sum(not each.waits_for_client for each in listener.connections) == len(clients))
        for _, writer in culprits:
            writer.close()
        assert all(answer == body for answer in await asyncio.gather(*answers))
        await until(lambda: listener.pool.bytes_in_use == 0)
        assert not listener.pool.is_short


async def test_clients_that_hold_memory_and_send_too_slowly_are_closed_when_others_need_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "PATIENCE_S", 0.2)
    async with listening() as (listener, port):
        culprits = await exhaust(listener, port)
        client = await connect(port)
        body = bytes(2 * SCRATCH_BYTES)
        monkeypatch.setattr(answers, "SHORT_BYTES_A_S_MIN", MIB)
        assert await ask(client, body) == body
        closed = listener.slow_clients.closed_total  # Those that began later may stay once there is room.
        assert closed > 0
        assert len(listener.connections) == 1 + len(culprits) - closed


async def test_a_client_whose_request_makes_no_progress_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PATIENCE_S", 0.05)
    monkeypatch.setattr(answers, "REQUEST_S_MAX", 0.2)
    async with listening() as (listener, port):
        patient, slow = await connect(port), await connect(port)
        patient[1].write(framed(b"mute") + framed(b"x")[:3])  # It waits for a response, so it may be slow.
        slow[1].write(struct.pack(">i", 1000))
        await until(lambda: listener.slow_clients.closed_total == 1)
        assert await slow[0].read() == b""
        assert len(listener.connections) == 1


async def test_the_memory_of_unread_responses_is_bounded_by_closing_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 20 * MIB)
    async with listening() as (listener, port):
        others = [await connect(port) for _ in range(30)]
        for _, writer in others:
            writer.write(framed(b"large"))
        most = 0
        while listener.slow_clients.closed_total < 25:
            await asyncio.sleep(0.001)
            most = max(most, listener.slow_clients.answer_bytes)
        assert most <= 2 * 20 * MIB + 8 * MIB
        assert listener.slow_clients.answer_bytes <= 2 * 20 * MIB
        assert await ask(await connect(port), b"small") == b"small"


class Unreading:
    """A client with an answer of 8 MiB."""

    peer, begun_bytes, holds_buffer, waits_for_client = "127.0.0.1:1", 0, False, False
    unsent_bytes, has_unsent = 8 * MIB, True

    def __init__(self, closed: list["Unreading"]) -> None:
        self.closed = closed
        self.bytes_sent = 0

    def close(self, reason: str | None = None) -> None:
        self.closed.append(self)


def test_the_clients_that_have_not_read_for_the_longest_time_are_closed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 20 * MIB)
    clock, checks, closed = ManualClock(), list[Callable[[], None]](), list[Unreading]()
    slow = SlowClients(BufferPool(POOL_BYTES, lambda _: None), clock.monotonic_s, checks.append)
    clients = [Unreading(closed) for _ in range(6)]
    for client in clients:
        assert not checks, "twice the limit is not exceeded"
        clock.passed_ms += 1_100
        slow.holds_answers(client)
    clients[0].bytes_sent = 1
    (check,) = checks
    check()
    assert closed == clients[1:5]


async def test_a_client_that_reads_its_response_is_not_closed_when_responses_take_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 12 * MIB)
    monkeypatch.setattr(answers, "PATIENCE_S", 1.5)  # A busy machine delays the client that reads.
    async with listening(send_buffer_bytes=50_000) as (listener, port):
        reading, silent = await connect(port), await connect(port)
        for client in (reading, silent):
            held = listener.slow_clients.answer_bytes
            client[1].write(framed(b"large"))
            await until(partial(_is_above, held, lambda: listener.slow_clients.answer_bytes))
        while not listener.slow_clients.closed_total:
            # It needs five seconds for its response, so that the other client's time is up first.
            assert await reading[0].read(32 * 1024)
            await asyncio.sleep(0.02)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await silent[0].readexactly(8 * MIB)
        while listener.slow_clients.answer_bytes:
            assert await reading[0].read(MIB)


async def test_a_client_that_reads_slowly_is_not_idle_and_one_that_stops_reading_is() -> None:
    """`connections.max.idle.ms` counts from the last byte in either direction, as in Kafka."""
    async with listening(send_buffer_bytes=50_000) as (listener, port):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)  # So the kernel cannot take the whole response.
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, framed(b"large"))
        await until(lambda: any(each.has_unsent for each in listener.connections))
        (connection,) = listener.connections
        for _ in range(2 * IDLE_CHECKS):
            sent = connection.bytes_sent
            while connection.bytes_sent == sent:
                assert await loop.sock_recv(client, 16 * 1024)
            listener._close_idle()
            assert not connection.is_closed
        for _ in range(IDLE_CHECKS + 1):
            listener._close_idle()
        assert connection.is_closed
        client.close()


async def test_a_large_request_of_a_broker_is_served_while_clients_hold_all_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "PATIENCE_S", 60.0)
    async with listening_to_brokers_too() as (listener, clients_port, brokers_port):
        culprits = await exhaust(listener, clients_port)
        body = bytes(2 * SCRATCH_BYTES)
        async with asyncio.timeout(PATIENCE_S):
            assert await ask(await connect(brokers_port), body) == body
        assert listener.pool.is_exhausted
        assert len(listener.connections) == len(culprits) + 1


async def test_a_broker_that_reads_nothing_is_not_closed_when_responses_take_too_much_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "ANSWER_BYTES_MAX", 20 * MIB)
    monkeypatch.setattr(answers, "PATIENCE_S", 0.05)
    async with listening_to_brokers_too() as (listener, clients_port, brokers_port):
        broker = await connect(brokers_port)
        broker[1].write(framed(b"large"))
        await until(lambda: any(each.has_unsent for each in listener.connections))
        clients = [await connect(clients_port) for _ in range(30)]
        for _, writer in clients:
            writer.write(framed(b"large"))
        await until(lambda: listener.slow_clients.closed_total >= 25)
        assert len(await broker[0].readexactly(8 * MIB + 4)) == 8 * MIB + 4


async def test_a_broker_whose_request_makes_no_progress_is_closed_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "PATIENCE_S", 0.05)
    monkeypatch.setattr(answers, "REQUEST_S_MAX", 0.2)
    async with listening_to_brokers_too() as (listener, _, brokers_port):
        broker = await connect(brokers_port)
        broker[1].write(struct.pack(">i", 1000))
        async with asyncio.timeout(PATIENCE_S):
            assert await broker[0].read() == b""
        assert not listener.connections


async def test_an_idle_client_is_not_closed_without_an_idle_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    period_s, looks, look = 0.01, list[float](), Listener._close_idle

    def observed(listener: Listener) -> None:
        looks.append(asyncio.get_running_loop().time())
        look(listener)

    monkeypatch.setattr(server_listener, "IDLE_CHECK_S", period_s)
    monkeypatch.setattr(Listener, "_close_idle", observed)
    async with listening(idle_s_max=None) as (listener, port):
        client = await connect(port)
        await until(lambda: len(looks) > 3 * IDLE_CHECKS)
        assert await ask(client, b"still here") == b"still here"
        assert len(listener.connections) == 1
        assert len(looks) <= 1 + (looks[-1] - looks[0]) / (0.9 * period_s)  # Each look comes after a pause.


def test_minus_one_means_no_idle_limit_and_the_default_socket_buffers() -> None:
    """A limit of -1 s would be over at the first look, and the system accepts no size of -1."""
    names = ("connections.max.idle.ms", "socket.send.buffer.bytes", "socket.receive.buffer.bytes")
    given = {"node.id": "1", "log.dirs": "/nowhere"}
    unlimited = socket_settings(parse_broker_config(given | dict.fromkeys(names, "-1")))
    assert (unlimited.idle_s_max, unlimited.send_buffer_bytes, unlimited.receive_buffer_bytes) == (None, None, None)
    limited = socket_settings(parse_broker_config(given | dict.fromkeys(names, "50000")))
    assert (limited.idle_s_max, limited.send_buffer_bytes, limited.receive_buffer_bytes) == (50.0, 50_000, 50_000)


async def test_socket_buffers_have_their_configured_size() -> None:
    async with listening(send_buffer_bytes=50_000, receive_buffer_bytes=40_000) as (listener, port):
        client = await connect(port)
        assert await ask(client, b"hello") == b"hello"
        (connection,) = listener.connections
        transport = connection._transport
        assert isinstance(transport, PlainTransport)
        held = transport._socket
        assert held.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 50_000
        assert held.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 * 40_000
