"""Small responses to requests that were received together are sent by two calls of the kernel."""

import asyncio
import socket

import pytest
import test_connection
from test_connection import answer, connected, framed

from barnabas_broker.handlers.large_responses import CloseConnection
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.transport import PlainTransport
from barnabas_broker.wire.framing import Buffer


class CountingTransport(PlainTransport):
    """A transport that records what each call of `send` sends."""

    sent: list[bytes]

    def __init__(self, loop: asyncio.AbstractEventLoop, connected: socket.socket) -> None:
        super().__init__(loop, connected)
        plain, self.sent = self.send, []

        def send(data: Buffer) -> int:
            self.sent.append(bytes(data))
            return plain(data)

        self.send = send


class Echo:
    """A dispatcher that echoes; a request can be refused, close the connection, or be answered at once."""

    def __call__(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        body = bytes(buffer[start:end])
        if body == b"refuse":
            raise CloseConnection("asked to")
        if body == b"close":
            connection.close()
        elif body == b"large":
            connection.answer([framed(body), bytes(4)])
        else:
            connection.answer_soon(bytearray(framed(body)))


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_connection, "PlainTransport", CountingTransport)


async def sends(*bodies: bytes, answered: int) -> list[bytes]:
    """Return what each call of `send` sent, for requests that were received together."""
    async with connected(Echo()) as (connection, reader, writer):  # type: ignore[arg-type]
        writer.write(b"".join(map(framed, bodies)))
        assert [await answer(reader) for _ in range(answered)] == list(bodies[:answered])
        transport = connection._transport
        assert isinstance(transport, CountingTransport)
        return transport.sent


async def test_the_responses_are_sent_in_two_halves() -> None:
    bodies = [b"first", b"other", b"third", b"fourt", b"fifth"]
    halves = [b"".join(map(framed, bodies[:3])), b"".join(map(framed, bodies[3:]))]
    assert await sends(*bodies, answered=5) == halves


async def test_a_single_response_is_sent_at_once() -> None:
    assert await sends(b"first", answered=1) == [framed(b"first")]


async def test_a_response_of_several_parts_follows_the_small_ones_in_one_call() -> None:
    assert (await sends(b"1", b"large", b"a request of more than half of the bytes", answered=2))[0].startswith(
        framed(b"1") + framed(b"large")
    )


@pytest.mark.parametrize("last", [b"refuse", b"close"])
async def test_a_request_that_ends_the_connection_drops_no_response_to_an_earlier_one(last: bytes) -> None:
    assert await sends(b"1", b"2", last, b"a request of more than half of the bytes", answered=2) == [
        framed(b"1") + framed(b"2")
    ]
