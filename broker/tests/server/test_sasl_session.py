"""What a connection of a listener with SASL may say before it has authenticated, and afterwards: real sockets."""

import asyncio
import functools
import logging
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, ParamSpec
from unittest.mock import AsyncMock

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from barnabas_broker.security.sasl.mechanism import Identity, Mechanism, ServerToken
from barnabas_broker.security.sasl.oauth_bearer import OAuthBearer
from barnabas_broker.security.sasl.plain import Plain
from barnabas_broker.security.sasl.tokens.key_set import parse_key_set
from barnabas_broker.security.sasl.tokens.token_keys import FetchTimes, TokenKeys
from barnabas_broker.security.sasl.tokens.token_rules import TokenRules
from barnabas_broker.server.admission import ConnectionLimits
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.listener import Listener, SocketSettings
from barnabas_broker.server.sasl_listener import SESSION_MS_MAX, SaslListener
from barnabas_broker.server.sasl_session import FIRST_FRAMES_BYTES_MAX, begin_session
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


P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def who(connection: Connection, buffer: memoryview, start: int, end: int) -> None:
    """The real dispatch of these tests: it says who asks."""
    name = connection.client.principal.encode()
    connection.respond([_SIZE.pack(len(name)) + name])


class EndingPlain(Plain):
    """PLAIN, with a credential that ends."""

    ends_ms: int | None = None

    def begin(self) -> "EndingPlain":
        return self

    def respond(self, token: bytes) -> ServerToken:
        answer = super().respond(token)
        assert answer.identity is not None
        return answer._replace(identity=Identity(answer.identity.user, self.ends_ms))


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
        """What comes next; None where the connection is closed."""
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

    async def connect(self) -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0)


@asynccontextmanager
async def world(session_ms: int = 0) -> AsyncIterator[World]:
    timers, mechanism = ManualTimers(), EndingPlain({"alice": "secret", "bob": "secret"})
    mechanisms: dict[str, Mechanism] = {"PLAIN": mechanism, "OAUTHBEARER": of_tokens(timers.clock)}
    session_ms_max = dict.fromkeys(mechanisms, session_ms)
    sasl = SaslListener("X", mechanisms, session_ms_max, DELAY_S, 524_288, timers.clock, timers)
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
        yield World(port, sasl, timers, mechanism)
    finally:
        listener.close()


@on_a_loop
async def test_a_client_that_authenticates_is_its_user_from_then_on() -> None:
    async with world() as at:
        client = await at.connect()
        assert await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1) is not None
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert await client.who() == b"User:alice"
        client.send(b"x" * (FIRST_FRAMES_BYTES_MAX + 1))
        assert await client.frame() == b"User:alice"
        assert at.sasl.counts.succeeded_first == 1


@on_a_loop
async def test_a_client_of_the_first_handshake_sends_bare_tokens() -> None:
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        client.send(GOOD)
        assert await client.frame() == b""
        assert await client.who() == b"User:alice"


@on_a_loop
async def test_a_bug_in_a_mechanism_costs_that_connection_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    async with world() as at:
        with monkeypatch.context() as patched:
            patched.setattr(EndingPlain, "respond", lambda *_: 1 // 0)
            client = await at.connect()
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert await client.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 2) is None
        assert (await (await at.connect()).log_in()).error_code == ErrorCode.NONE
    assert not escaped
    assert "bug in the SASL authentication of 127.0.0.1:" in caplog.text


@on_a_loop
async def test_a_stranger_with_a_long_name_gets_a_short_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.request(SaslAuthenticateRequest(auth_bytes=b"\0" + b"\1" * 60_000 + b"\0wrong"), 2)
        await at.until(lambda: at.sasl.counts.failed == 1)
    assert "wrong user or password of" in caplog.text
    assert len(caplog.text) < 2_000


@on_a_loop
async def test_a_refusal_names_the_mechanism_only_and_comes_late() -> None:
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.request(SaslAuthenticateRequest(auth_bytes=BAD), 2)
        await at.until(lambda: at.sasl.counts.failed == 1)
        assert at.sasl.counts.failures["PLAIN"] == 1
        at.timers.pass_time(DELAY_S)
        frame = await client.frame()
        assert frame is not None
        assert b"invalid credentials with SASL mechanism PLAIN" in frame
        assert struct.unpack_from(">h", frame, 5) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)
        assert await client.frame() is None


@on_a_loop
async def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    async with world() as at:
        client = await at.connect()
        client.request(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        await at.until(lambda: at.sasl.counts.failed == 1)
        at.timers.pass_time(DELAY_S)
        refused = struct.pack(">ihi", 1, ErrorCode.UNSUPPORTED_SASL_MECHANISM, 2)
        assert await client.frame() == refused + b"\0\5PLAIN\0\x0bOAUTHBEARER"
        assert await client.frame() is None


@pytest.mark.parametrize("before", [[], ["versions"], ["handshake"]])
@on_a_loop
async def test_before_authentication_nothing_is_served(before: list[str]) -> None:
    async with world() as at:
        client = await at.connect()
        if "versions" in before:
            client.request(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
            assert await client.frame() == b"User:ANONYMOUS"
        if "handshake" in before:
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert await client.who() is None


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11\0\1", b"GET / HTTP/1.1", b"\0\x24\0\2" + b"\xff" * 40])
@on_a_loop
async def test_what_is_no_request_closes_the_connection(frame: bytes) -> None:
    async with world() as at:
        client = await at.connect()
        client.send(frame)
        assert await client.frame() is None


@on_a_loop
async def test_a_large_frame_is_refused_at_its_size_and_a_silent_client_in_time() -> None:
    async with world() as at:
        large, silent = await at.connect(), await at.connect()
        large.writer.write(_SIZE.pack(FIRST_FRAMES_BYTES_MAX + 1))
        assert await large.frame() is None
        await at.until(lambda: len(at.timers.waiting) == 2)
        at.timers.pass_time(at.sasl.deadline_s)
        assert await silent.frame() is None


@on_a_loop
async def test_a_session_ends_unless_the_client_authenticates_again_as_the_same_user() -> None:
    async with world(session_ms=10_000) as at:
        renewing, other, idle = await at.connect(), await at.connect(), await at.connect()
        for client in (renewing, other, idle):
            assert (await client.log_in()).session_lifetime_ms == 10_000
        at.timers.pass_time(8)
        assert (await renewing.log_in()).error_code == ErrorCode.NONE
        at.timers.pass_time(8)
        assert await renewing.who() == b"User:alice"
        assert await idle.who() is None
        await other.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        other.request(SaslAuthenticateRequest(auth_bytes=b"\0bob\0secret"), 2)
        await at.until(lambda: at.sasl.counts.failed == 1)
        at.timers.pass_time(DELAY_S)
        assert b"Authentication failed" in (await other.frame() or b"")
        assert (at.sasl.counts.succeeded_again, at.sasl.counts.expired) == (1, 1)


@on_a_loop
async def test_a_session_ends_no_later_than_its_credential() -> None:
    async with world(session_ms=10_000) as at:
        at.mechanism.ends_ms = START_MS + 3_000
        client = await at.connect()
        assert (await client.log_in()).session_lifetime_ms == 3_000


@on_a_loop
async def test_a_session_lasts_as_long_as_its_token() -> None:
    async with world() as at:
        client = await at.connect()
        answer = await client.log_in(bearer(valid_s=5), "OAUTHBEARER")
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 5_000)
        at.timers.pass_time(4)
        assert await client.who() == b"User:alice"
        assert (await client.log_in(bearer(valid_s=9), "OAUTHBEARER")).session_lifetime_ms == 5_000
        at.timers.pass_time(4.9)
        assert await client.who() == b"User:alice"
        at.timers.pass_time(0.2)
        assert await client.who() is None
        assert at.sasl.counts.expired == 1


@on_a_loop
async def test_a_wrong_token_is_answered_twice_and_counted_once() -> None:
    async with world() as at:
        client = await at.connect()
        answer = await client.log_in(bearer(valid_s=-5), "OAUTHBEARER")
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        assert at.sasl.counts.failed == 1
        client.request(SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
        await at.until(lambda: len(at.timers.waiting) == 2)
        at.timers.pass_time(DELAY_S)
        frame = await client.frame()
        assert frame is not None
        assert struct.unpack_from(">h", frame, 5) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)
        assert b'{"status":"invalid_token"}' in frame
        assert await client.frame() is None
        assert at.sasl.counts.failed == 1


@on_a_loop
async def test_a_session_without_a_sensible_end_is_a_long_one() -> None:
    async with world(session_ms=2**63 - 1) as at:
        client = await at.connect()
        assert (await client.log_in()).session_lifetime_ms == SESSION_MS_MAX


@on_a_loop
async def test_to_authenticate_again_at_once_is_refused_and_the_session_goes_on() -> None:
    async with world(session_ms=10_000) as at:
        client = await at.connect()
        await client.log_in()
        again = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.who() == b"User:alice"
