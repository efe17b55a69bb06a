"""Links between brokers, over real sockets, to a server that sends what the test says."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from barnabas_broker.server.peer_link import FIRST_BUFFER_BYTES, SMALL_UNTIL_SHRUNK, PeerLink, PeerLinks
from harness.deadline import PATIENCE_S


class Peer:
    """A broker that takes requests and answers when the test says so."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.connected = asyncio.Event()
        self.writer: asyncio.StreamWriter | None = None
        self.changed = asyncio.Condition()

    async def __aenter__(self) -> "Peer":
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address: tuple[str, int] = self.server.sockets[0].getsockname()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.server.close()
        if self.writer is not None:
            self.writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.connected.set()
        while data := await reader.read(1 << 20):
            async with self.changed:
                self.received += data
                self.changed.notify_all()

    async def got(self, length: int) -> bytes:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(lambda: len(self.received) >= length)
        return bytes(self.received)

    def answer(self, *bodies: bytes) -> None:
        assert self.writer is not None
        self.writer.write(b"".join(struct.pack(">i", len(body)) + body for body in bodies))


class Calls:
    """The responses and closings that a link has reported; `wait_for` waits for so many of them."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, bytes]] = []
        self.closed: list[str] = []
        self.changed = asyncio.Event()

    def on_response(self, number: int) -> Callable[[memoryview], None]:
        def called(frame: memoryview) -> None:
            self.responses.append((number, bytes(frame)))
            self.changed.set()

        return called

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)
        self.changed.set()

    async def wait_for(self, *, responses: int = 0, closed: int = 0) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.responses) < responses or len(self.closed) < closed:
                self.changed.clear()
                await self.changed.wait()


@asynccontextmanager
async def linked() -> AsyncIterator[tuple[Peer, PeerLink, Calls]]:
    async with Peer() as peer:
        calls = Calls()
        links = PeerLinks(asyncio.get_running_loop(), lambda broker_id: peer.address if broker_id == 1 else None)
        link = links.open(1, calls.on_closed)
        try:
            yield peer, link, calls
        finally:
            link.close()


async def test_requests_wait_for_the_connection_and_are_answered_in_order() -> None:
    async with linked() as (peer, link, calls):
        link.send(b"first", calls.on_response(1))
        link.send(b"second", calls.on_response(2))
        assert await peer.got(11) == b"firstsecond"
        peer.answer(b"one", b"two")
        await calls.wait_for(responses=2)
        link.send(b"third", calls.on_response(3))
        await peer.got(16)
        peer.answer(b"three")
        await calls.wait_for(responses=3)
        assert calls.responses == [(1, b"one"), (2, b"two"), (3, b"three")]


async def test_responses_larger_than_the_buffer_and_small_ones_after_them_arrive_whole() -> None:
    large = bytes(range(256)) * (FIRST_BUFFER_BYTES // 256 * 5)
    async with linked() as (peer, link, calls):
        bodies = [b"small", large, b"x", large[: FIRST_BUFFER_BYTES - 4], b"last"]
        for number in range(5):
            link.send(b"r", calls.on_response(number))
        await peer.got(5)
        peer.answer(*bodies)
        await calls.wait_for(responses=5)
        assert [data for _, data in calls.responses] == bodies


async def test_a_response_that_is_kept_is_not_overwritten_by_later_ones() -> None:
    async with linked() as (peer, link, calls):
        kept: list[memoryview] = []
        bodies = [bytes([number]) * size for number, size in enumerate((10, FIRST_BUFFER_BYTES * 3, 7, 200_000, 1))]
        for number in range(5):

            def keep(frame: memoryview, number: int = number) -> None:
                if number % 2 == 0:
                    kept.append(frame[:])
                calls.on_response(number)(frame)

            link.send(b"r", keep)
        await peer.got(5)
        for each in bodies:
            peer.answer(each)
            await calls.wait_for(responses=bodies.index(each) + 1)
        assert [bytes(each) for each in kept] == [bodies[0], bodies[2], bodies[4]]
        assert [data for _, data in calls.responses] == bodies


async def test_a_large_buffer_is_released_after_many_small_responses() -> None:
    async with linked() as (peer, link, calls):
        rounds = SMALL_UNTIL_SHRUNK + 3
        link.send(b"r", calls.on_response(0))
        await peer.got(1)
        peer.answer(bytes(FIRST_BUFFER_BYTES * 9))
        await calls.wait_for(responses=1)
        for number in range(1, rounds):
            link.send(b"r", calls.on_response(number))
            await peer.got(number + 1)
            peer.answer(b"%d" % number)
            await calls.wait_for(responses=number + 1)
        assert [data for _, data in calls.responses[1:]] == [b"%d" % number for number in range(1, rounds)]
        assert len(link._buffer) == FIRST_BUFFER_BYTES


async def test_a_response_that_arrives_byte_by_byte_is_delivered_whole() -> None:
    async with linked() as (peer, link, calls):
        link.send(b"r", calls.on_response(1))
        link.send(b"r", calls.on_response(2))
        await peer.got(2)
        assert peer.writer is not None
        for byte in struct.pack(">i", 5) + b"hello" + struct.pack(">i", 2) + b"me":
            peer.writer.write(bytes([byte]))
            await peer.writer.drain()
            await asyncio.sleep(0)
        await calls.wait_for(responses=2)
        assert calls.responses == [(1, b"hello"), (2, b"me")]


async def test_a_request_larger_than_the_socket_buffer_is_sent_whole() -> None:
    async with linked() as (peer, link, calls):
        frame = bytes(range(256)) * 65536
        link.send(frame, calls.on_response(1))
        link.send(b"behind it", calls.on_response(2))
        assert await peer.got(len(frame) + 9) == frame + b"behind it"


async def test_a_closed_connection_is_reported_once_and_waiting_requests_get_no_response() -> None:
    async with linked() as (peer, link, calls):
        link.send(b"r", calls.on_response(1))
        await peer.got(1)
        assert peer.writer is not None
        peer.writer.close()
        await calls.wait_for(closed=1)
        link.send(b"r", calls.on_response(2))
        await asyncio.sleep(0)
        assert (calls.closed, calls.responses) == (["the other broker closed the connection"], [])


@pytest.mark.parametrize("size", [0, -1, 2**30 + 1])
async def test_a_response_of_an_impossible_size_closes_the_link(size: int) -> None:
    async with linked() as (peer, link, calls):
        link.send(b"r", calls.on_response(1))
        await peer.got(1)
        assert peer.writer is not None
        peer.writer.write(struct.pack(">i", size))
        await calls.wait_for(closed=1)
        assert f"{size} bytes" in calls.closed[0]


async def test_a_response_without_a_request_closes_the_link() -> None:
    async with linked() as (peer, _, calls):
        async with asyncio.timeout(PATIENCE_S):
            await peer.connected.wait()
        peer.answer(b"who asked")
        await calls.wait_for(closed=1)
        assert "0 requests" in calls.closed[0]


async def test_a_bug_in_the_handling_of_a_response_closes_the_link() -> None:
    async with linked() as (peer, link, calls):

        def bug(_: memoryview) -> None:
            raise ZeroDivisionError

        link.send(b"r", bug)
        await peer.got(1)
        peer.answer(b"answer")
        await calls.wait_for(closed=1)
        assert "unexpected error" in calls.closed[0]


async def test_a_link_may_be_closed_while_a_response_is_handled() -> None:
    async with linked() as (peer, link, calls):

        def close(frame: memoryview) -> None:
            calls.on_response(1)(frame)
            link.close()

        link.send(b"r", close)
        link.send(b"r", calls.on_response(2))
        await peer.got(2)
        peer.answer(b"one", b"two")
        await calls.wait_for(responses=1)
        await asyncio.sleep(0.01)
        assert (calls.responses, calls.closed) == ([(1, b"one")], [])


async def test_a_broker_without_an_address_or_without_a_listener_is_reported_as_closed() -> None:
    calls = Calls()
    async with Peer() as peer:
        gone = peer.address
    links = PeerLinks(asyncio.get_running_loop(), lambda broker_id: gone if broker_id == 1 else None)
    links.open(1, calls.on_closed)
    await calls.wait_for(closed=1)
    links.open(2, calls.on_closed)
    assert len(calls.closed) == 1
    await calls.wait_for(closed=2)
    assert "cannot connect" in calls.closed[0]
    assert "broker 2 has registered no address" in calls.closed[1]
    links.open(1, calls.on_closed).close()
    await asyncio.sleep(0.01)
    assert len(calls.closed) == 2


async def test_a_broker_with_an_invalid_host_name_is_reported_as_closed_at_once() -> None:
    """A follower would otherwise wait for `replica.socket.timeout.ms` each time, and report a missing answer."""
    calls = Calls()
    PeerLinks(asyncio.get_running_loop(), lambda _: ("broker..example", 9092)).open(1, calls.on_closed)
    await calls.wait_for(closed=1)
    assert "broker..example is not a host name" in calls.closed[0]
