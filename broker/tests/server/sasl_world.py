"""A listener with SASL on real sockets, and clients that send it what a test wants."""

import asyncio
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from unittest.mock import AsyncMock

from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from barnabas_broker.security.sasl.key_set import parse_key_set
from barnabas_broker.security.sasl.oauth_bearer import OAuthBearer
from barnabas_broker.security.sasl.scram import Identity, Mechanism, Plain, ServerToken, SlowCheck
from barnabas_broker.security.sasl.token_keys import FetchTimes, TokenKeys, TokenRules
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.connection_bounds import ConnectionLimits
from barnabas_broker.server.listener import Listener, SocketSettings
from barnabas_broker.server.sasl_session import DEADLINE_S, Logins, PasswordThread, SaslListener, begin_session
from barnabas_core.config.definitions import INT_MAX
from barnabas_core.errors import ErrorCode
from harness.manual_clock import START_MS, ManualClock
from harness.manual_loop_clock import ManualLoopClock
from harness.manual_timers import ManualTimers
from harness.tokens import Issuer

GOOD = b"\0alice\0secret"
BAD = b"\0alice\0wrong"
DELAY_S = 0.1
ISSUER = Issuer()
_SIZE = struct.Struct(">i")


def who(connection: Connection, buffer: memoryview, start: int, end: int) -> None:
    """Answer with the principal of the connection; this is the dispatch after the login."""
    name = connection.client.principal.encode()
    connection.answer([_SIZE.pack(len(name)) + name])


class EndingPlain(Plain):
    """PLAIN, with a credential that expires."""

    ends_ms: int | None = None

    def begin(self) -> "EndingPlain":
        return self

    def answer(self, token: bytes) -> ServerToken:
        found = super().answer(token)
        assert found.identity is not None
        return found._replace(identity=Identity(found.identity.user, self.ends_ms))


class SlowPlain:
    """PLAIN, whose answers wait for a thread."""

    name = "SLOW"

    def __init__(self, plain: Plain) -> None:
        self._plain = plain
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.compute: Callable[[], bytes] = lambda: b"" if self.goes_on.wait(60) else b"late"

    def begin(self) -> "SlowPlain":
        return self

    def answer(self, token: bytes) -> SlowCheck:
        return SlowCheck(self.compute, lambda _: self._plain.answer(token))


def of_tokens(clock: ManualClock) -> OAuthBearer:
    keys = TokenKeys("file:///keys", AsyncMock(), FetchTimes(1, 1, 1), ManualLoopClock())
    keys.current = parse_key_set(ISSUER.key_set())
    return OAuthBearer(keys, TokenRules((), None, 0), clock.now_ms)


def bearer(valid_s: float) -> bytes:
    return b"n,,\1auth=Bearer " + ISSUER.token("alice", now_s=START_MS / 1000, valid_s=valid_s).encode() + b"\1\1"


class Client(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, frame: bytes) -> None:
        self.writer.write(_SIZE.pack(len(frame)) + frame)

    def request(self, request: Any, version: int) -> None:
        request.API_VERSION = version
        request.with_header(correlation_id=1, client_id="c")
        self.writer.write(request.encode(header=True, framed=True))

    async def frame(self) -> bytes | None:
        """Return the next frame, or None if the connection is closed."""
        try:
            (size,) = _SIZE.unpack(await self.reader.readexactly(4))
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, request: Any, version: int) -> Any:
        self.request(request, version)
        frame = await self.frame()
        return None if frame is None else request.header.get_response_class().decode(frame, header=True)

    async def who(self) -> bytes | None:
        self.request(MetadataRequest(topics=[]), 4)
        return await self.frame()

    async def log_in(self, token: bytes = GOOD, mechanism: str = "PLAIN") -> Any:
        assert (await self.ask(SaslHandshakeRequest(mechanism=mechanism), 1)).error_code == ErrorCode.NONE
        return await self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


class World(NamedTuple):
    port: int
    sasl: SaslListener
    timers: ManualTimers
    mechanism: EndingPlain
    slow: SlowPlain

    async def connect(self, source: str = "127.0.0.1") -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(source, 0)))

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0)


@asynccontextmanager
async def world(session_ms: int = 0, connections_max: int | None = None) -> AsyncIterator[World]:
    timers, mechanism = ManualTimers(), EndingPlain({"alice": "secret", "bob": "secret"})
    slow, thread = SlowPlain(mechanism), PasswordThread(asyncio.get_running_loop())
    mechanisms: dict[str, Mechanism] = {"PLAIN": mechanism, "OAUTHBEARER": of_tokens(timers.clock), "SLOW": slow}
    session_ms_max = dict.fromkeys(mechanisms, session_ms)
    logins = Logins(timers, timers.clock, connections_max, DEADLINE_S)
    sasl = SaslListener("X", mechanisms, session_ms_max, DELAY_S, 524_288, timers.clock, timers, thread, logins)
    listener = Listener(
        asyncio.get_running_loop(),
        who,
        SocketSettings(1_000_000, 64_000_000, 600.0),
        lambda: ConnectionLimits(INT_MAX, INT_MAX, {}, INT_MAX),
        sessions={"X": lambda connection: begin_session(sasl, connection)},
    )
    port = listener.bind("X", "127.0.0.1", 0)
    listener.start()
    try:
        yield World(port, sasl, timers, mechanism, slow)
    finally:
        slow.goes_on.set()
        listener.close()
        thread.close()
