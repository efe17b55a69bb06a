"""A closed connection is freed at once, whatever it waited for."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from weakref import ref

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from sasl_world import BAD, GOOD, Client, World, world

from barnabas_broker.server import listener as listeners
from barnabas_broker.server.connection import Connection
from harness.deadline import PATIENCE_S

Made = list["ref[Connection]"]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Yield references to all connections that are made, while nothing breaks cycles of references."""
    made: Made = []

    class Watched(Connection):
        """A connection that can be watched."""

        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(ref(self))

    monkeypatch.setattr(listeners, "Connection", Watched)
    gc.collect()
    gc.disable()
    try:
        yield made
    finally:
        gc.enable()


@asynccontextmanager
async def freed(made: Made) -> AsyncIterator[World]:
    """Run a world whose only client is closed by the test; the connection must be freed without time passing."""
    async with world(session_ms=3_600_000) as at:
        yield at
        assert len(made) == 1
        async with asyncio.timeout(PATIENCE_S):
            while made[0]() is not None:
                await asyncio.sleep(0.001)
        assert not at.sasl.logins.connections


def found(made: Made) -> Connection:
    connection = made[0]()
    assert connection is not None
    return connection


async def ask_for(client: Client, mechanism: str) -> None:
    await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)


async def test_a_connection_that_says_nothing_is_freed_when_it_is_closed(made: Made) -> None:
    async with freed(made) as at:
        client = await at.connect()
        await at.until(lambda: made)
        client.writer.close()


async def test_a_connection_that_has_authenticated_is_freed_when_it_is_closed(made: Made) -> None:
    async with freed(made) as at:
        client = await at.connect()
        await client.log_in(mechanism="SLOW")
        client.writer.close()


async def test_a_connection_that_waits_for_its_refusal_is_freed_when_it_is_closed(
    made: Made,
) -> None:
    async with freed(made) as at:
        client = await at.connect()
        await ask_for(client, "PLAIN")
        client.request(SaslAuthenticateRequest(auth_bytes=BAD), 2)
        await at.until(lambda: at.sasl.counts.failed)
        found(made).close()


@pytest.mark.parametrize("ahead", [0, 5])
async def test_a_connection_whose_password_is_hashed_or_waits_for_it_is_freed_when_it_is_closed(
    made: Made, ahead: int
) -> None:
    async with freed(made) as at:
        at.slow.goes_on.clear()
        for _ in range(ahead):
            at.sasl.in_thread("127.0.0.1", at.slow.compute, lambda _: None)
        client = await at.connect()
        await ask_for(client, "SLOW")
        client.request(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        await at.until(lambda: not found(made).waits_for_client)
        found(made).close()


async def test_a_connection_that_a_client_leaves_within_a_request_is_freed(made: Made) -> None:
    async with freed(made) as at:
        client = await at.connect()
        await client.log_in()
        client.writer.write(struct.pack(">i", 500_000) + bytes(300_000))
        await client.writer.drain()
        client.writer.transport.abort()


async def test_a_connection_that_is_throttled_is_freed_when_it_is_closed(made: Made) -> None:
    async with freed(made) as at:
        client = await at.connect()
        await client.log_in()
        found(made).answers.mute(3_600)
        found(made).close()
