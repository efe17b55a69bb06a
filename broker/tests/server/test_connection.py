"""A connection frames requests, keeps answers in order, mutes itself meanwhile, and bounds its memory."""

import asyncio
import random
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.large_responses import CloseConnection
from barnabas_broker.server.answers import SlowClients
from barnabas_broker.server.connection import KEPT_BYTES_MAX, SCRATCH_BYTES, Connection, TurnShare
from barnabas_broker.server.connection_bounds import BufferPool
from barnabas_broker.server.transport import ColdReads, PlainTransport
from barnabas_broker.wire.framing import Part

REQUEST_BYTES_MAX = 4 * 1024 * 1024


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@dataclass
class Recorder:
    """A dispatcher that echoes; `held` answers wait for the test."""

    hold: bool = False
    requests: list[bytes] = field(default_factory=list)
    held: list[tuple[Callable[[list[Part]], None], bytes]] = field(default_factory=list)

    def __call__(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        body = bytes(buffer[start:end])
        self.requests.append(body)
        if body == b"close me":
            raise CloseConnection("asked to")
        if self.hold:
            self.held.append((connection.defer(), body))
        else:
            connection.answer([framed(body)])


@asynccontextmanager
async def connected(
    dispatch: Recorder, pool: BufferPool | None = None, pair: tuple[socket.socket, socket.socket] | None = None
) -> AsyncIterator[tuple[Connection, asyncio.StreamReader, asyncio.StreamWriter]]:
    theirs, ours = pair or socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    pool = pool or BufferPool(64 * 1024 * 1024, loop.call_soon)
    connection = Connection(
        loop,
        PlainTransport(loop, ours),
        Client("PLAINTEXT", "a test"),
        dispatch,
        scratch,
        pool,
        SlowClients(pool, loop.time, loop.call_soon),
        ColdReads(loop),
        TurnShare(loop.call_soon),
        REQUEST_BYTES_MAX,
        lambda closed: None,
    )
    reader, writer = await asyncio.open_connection(sock=theirs)
    try:
        yield connection, reader, writer
    finally:
        connection.close()
        writer.close()


async def answer(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=20), st.integers(1, 97))
def test_requests_that_arrive_in_pieces_are_answered_whole_and_in_order(bodies: list[bytes], piece_bytes: int) -> None:
    async def run() -> None:
        async with connected(Recorder()) as (_, reader, writer):
            stream = b"".join(map(framed, bodies))
            for start in range(0, len(stream), piece_bytes):
                writer.write(stream[start : start + piece_bytes])
                await writer.drain()
                await asyncio.sleep(0)
            assert [await answer(reader) for _ in bodies] == bodies

    asyncio.run(run())


async def test_requests_larger_than_the_scratch_buffer_arrive_and_give_their_memory_back() -> None:
    bodies = [bytes([number]) * (SCRATCH_BYTES * number + 17) for number in range(1, 6)]
    pool = BufferPool(64 * 1024 * 1024, asyncio.get_running_loop().call_soon)
    async with connected(Recorder(), pool) as (_, reader, writer):
        writer.write(b"".join(map(framed, bodies)))
        assert [await answer(reader) for _ in bodies] == bodies
    assert pool.bytes_in_use == 0


@pytest.mark.parametrize("mapped_above_bytes", [0, 1_000_000, 100_000_000])
async def test_the_bytes_of_a_large_request_move_to_a_larger_buffer_in_portions(
    monkeypatch: pytest.MonkeyPatch, mapped_above_bytes: int
) -> None:
    portions = list[int]()
    move = Connection._move_some

    def counted(connection: Connection, old: bytearray, rest: memoryview, begin: int) -> None:
        portions.append(len(rest) - begin)
        move(connection, old, rest, begin)

    monkeypatch.setattr("barnabas_broker.server.connection.MOVED_BYTES", 100_000)
    monkeypatch.setattr("barnabas_broker.server.connection_bounds.MAPPED_ABOVE_BYTES", mapped_above_bytes)
    monkeypatch.setattr(Connection, "_move_some", counted)
    bodies = [random.randbytes(3_000_000), b"small", random.randbytes(2_000_000), b"last"]
    pool = BufferPool(64 * 1024 * 1024, asyncio.get_running_loop().call_soon)
    async with connected(Recorder(), pool) as (_, reader, writer):
        writer.write(b"".join(map(framed, bodies)))
        assert [await answer(reader) for _ in bodies] == bodies
    assert len(portions) > 20
    assert pool.bytes_in_use == 0


async def test_a_connection_that_closes_while_bytes_move_gives_both_buffers_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barnabas_broker.server.connection.MOVED_BYTES", 10_000)
    pool = BufferPool(64 * 1024 * 1024, asyncio.get_running_loop().call_soon)
    async with connected(Recorder(), pool) as (connection, _, writer):
        writer.write(framed(bytes(3_000_000)))
        while not connection._is_moving:
            await asyncio.sleep(0)
        connection.close()
        while pool.bytes_in_use:
            await asyncio.sleep(0)


async def test_no_request_is_handled_while_an_answer_is_outstanding() -> None:
    recorder = Recorder(hold=True)
    async with connected(recorder) as (_, reader, writer):
        writer.write(framed(b"first") + framed(b"second"))
        while not recorder.held:
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert recorder.requests == [b"first"]
        recorder.hold = False
        send, body = recorder.held.pop()
        send([framed(body)])
        assert [await answer(reader), await answer(reader)] == [b"first", b"second"]


@pytest.mark.parametrize("size", [-1, 0, REQUEST_BYTES_MAX + 1, 2**31 - 1])
async def test_a_request_of_an_impossible_size_closes_the_connection_and_takes_no_memory(size: int) -> None:
    pool = BufferPool(64 * 1024 * 1024, asyncio.get_running_loop().call_soon)
    async with connected(Recorder(), pool) as (connection, reader, writer):
        writer.write(struct.pack(">i", size))
        assert await reader.read() == b""
        assert connection.is_closed
        assert pool.bytes_in_use == 0


async def test_a_request_that_claims_a_large_size_gets_memory_only_for_its_received_bytes() -> None:
    pool = BufferPool(64 * 1024 * 1024, asyncio.get_running_loop().call_soon)
    async with connected(Recorder(), pool) as (_, _, writer):
        writer.write(struct.pack(">i", REQUEST_BYTES_MAX) + b"x" * 2 * KEPT_BYTES_MAX)
        while not pool.bytes_in_use:
            await asyncio.sleep(0)
        assert pool.bytes_in_use <= 64 * 1024


async def test_requests_beyond_the_memory_limit_wait_for_each_other_and_all_are_answered() -> None:
    pool = BufferPool(256 * 1024, asyncio.get_running_loop().call_soon)
    recorder = Recorder()
    async with connected(recorder, pool) as first, connected(recorder, pool) as second:
        body = b"x" * (1024 * 1024)
        for _, _, writer in (first, second):
            writer.write(framed(body))
        assert await answer(first[1]) == body
        assert await answer(second[1]) == body
    assert pool.bytes_in_use == 0


async def test_a_handler_can_close_the_connection() -> None:
    async with connected(Recorder()) as (connection, reader, writer):
        writer.write(framed(b"close me") + framed(b"never seen"))
        assert await reader.read() == b""
        assert connection.is_closed


async def _write_all(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    recorder = Recorder()
    body = b"y" * (512 * 1024)
    async with connected(recorder) as (_, reader, writer):
        sent = asyncio.ensure_future(_write_all(writer, framed(body) * 40))
        for _ in range(200):
            await asyncio.sleep(0)
        assert len(recorder.requests) < 40
        assert all([await answer(reader) == body for _ in range(40)])
        await sent


async def test_a_throttled_connection_reads_again_after_the_longest_of_its_delays() -> None:
    recorder = Recorder()
    async with connected(recorder) as (connection, reader, writer):
        for seconds in (0.01, 0.05, 0.001):
            connection.answers.mute(seconds)
        writer.write(framed(b"later"))
        await asyncio.sleep(0)
        assert connection.answers.must_go_first
        assert await answer(reader) == b"later"


async def test_a_throttled_connection_that_closes_leaves_no_timer() -> None:
    async with connected(Recorder()) as (connection, _, _):
        connection.answers.mute(3600.0)
        timer = connection.answers._throttle
        connection.close()
        assert timer is not None
        assert timer.cancelled()
