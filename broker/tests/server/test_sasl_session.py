"""Requests on connections of a listener with SASL, before and after authentication, over real sockets."""

import asyncio
import logging
import struct

import pytest
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from sasl_world import BAD, DELAY_S, GOOD, EndingPlain, bearer, world

from barnabas_broker.server.sasl_session import DEADLINE_S, REFUSED_VERSIONS_MAX, SASL_FRAME_BYTES_MAX, SESSION_MS_MAX
from barnabas_core.errors import ErrorCode
from harness.manual_clock import START_MS


async def test_a_client_acts_as_its_user_after_it_has_authenticated() -> None:
    async with world() as at:
        client = await at.connect()
        assert await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1) is not None
        answer = await client.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
        assert await client.who() == b"User:alice"
        client.send(b"x" * (SASL_FRAME_BYTES_MAX + 1))
        assert await client.frame() == b"User:alice"
        assert at.sasl.counts.succeeded_first == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SLOW"])
async def test_a_client_of_handshake_version_0_sends_bare_tokens(mechanism: str) -> None:
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism=mechanism), 0)
        client.send(GOOD)
        assert await client.frame() == b""
        assert await client.who() == b"User:alice"


async def test_a_bug_in_a_mechanism_ends_only_that_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    escaped: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: escaped.append(context))
    async with world() as at:
        with monkeypatch.context() as patched:
            patched.setattr(EndingPlain, "answer", lambda *_: 1 // 0)
            client = await at.connect()
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert await client.ask(SaslAuthenticateRequest(auth_bytes=GOOD), 2) is None
        assert (await (await at.connect()).log_in()).error_code == ErrorCode.NONE
    assert not escaped
    assert "bug in the SASL authentication of 127.0.0.1:" in caplog.text


async def test_a_failed_login_with_a_long_user_name_is_logged_as_a_short_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.request(SaslAuthenticateRequest(auth_bytes=b"\0" + b"\1" * 60_000 + b"\0wrong"), 2)
        await at.until(lambda: at.sasl.counts.failed == 1)
    assert "or the password is wrong" in caplog.text
    assert len(caplog.text) < 2_000


@pytest.mark.parametrize("mechanism", ["PLAIN", "SLOW"])
async def test_a_refusal_is_delayed_and_names_only_the_mechanism(mechanism: str) -> None:
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
        client.request(SaslAuthenticateRequest(auth_bytes=BAD), 2)
        await at.until(lambda: at.sasl.counts.failed == 1)
        assert at.sasl.counts.failures[mechanism] == 1
        at.timers.pass_time(DELAY_S)
        frame = await client.frame()
        assert frame is not None
        assert f"invalid credentials with SASL mechanism {mechanism}".encode() in frame
        assert struct.unpack_from(">h", frame, 5) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)
        assert await client.frame() is None


async def test_a_request_for_a_disabled_mechanism_is_answered_with_the_enabled_ones() -> None:
    async with world() as at:
        client = await at.connect()
        client.request(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        await at.until(lambda: at.sasl.counts.failed == 1)
        at.timers.pass_time(DELAY_S)
        refused = struct.pack(">ihi", 1, ErrorCode.UNSUPPORTED_SASL_MECHANISM, 3)
        assert await client.frame() == refused + b"\0\5PLAIN\0\x0bOAUTHBEARER\0\4SLOW"
        assert await client.frame() is None


@pytest.mark.parametrize("before", [[], ["versions"], ["handshake"]])
async def test_no_request_is_served_before_authentication(before: list[str]) -> None:
    async with world() as at:
        client = await at.connect()
        if "versions" in before:
            client.request(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
            assert await client.frame() == b"User:ANONYMOUS"
        if "handshake" in before:
            await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert await client.who() is None


async def test_a_client_may_try_few_unsupported_versions_of_api_versions() -> None:
    async with world() as at:
        client = await at.connect()
        for _ in range(REFUSED_VERSIONS_MAX):
            client.send(struct.pack(">hhih", 18, 100, 1, -1) + b"\0")
            assert await client.frame() is not None
        client.send(struct.pack(">hhih", 18, 100, 1, -1) + b"\0")
        assert await client.frame() is None


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\x11\0\1", b"GET / HTTP/1.1", b"\0\x24\0\2" + b"\xff" * 40])
async def test_a_frame_that_is_no_request_closes_the_connection(frame: bytes) -> None:
    async with world() as at:
        client = await at.connect()
        client.send(frame)
        assert await client.frame() is None


async def test_a_client_that_announces_a_large_frame_or_stays_silent_is_closed_before_authentication() -> None:
    async with world() as at:
        large, silent = await at.connect(), await at.connect()
        large.writer.write(struct.pack(">i", SASL_FRAME_BYTES_MAX + 1))
        assert await large.frame() is None
        await at.until(lambda: len(at.sasl.logins.connections) == 1)
        at.timers.pass_time(DEADLINE_S)
        assert await silent.frame() is None


async def test_an_address_that_never_authenticates_holds_few_places_and_none_of_another() -> None:
    async with world(connections_max=3) as at:
        honest = await at.connect("127.0.0.2")
        silent = [await at.connect() for _ in range(9)]
        for closed in silent[:7]:
            assert await closed.frame() is None
        assert (await honest.log_in()).error_code == ErrorCode.NONE
        assert (await silent[-1].log_in()).error_code == ErrorCode.NONE
        assert len(at.sasl.logins.connections) == 1


async def test_a_frame_of_a_reauthentication_is_no_larger_than_one_of_the_first_authentication() -> None:
    async with world(session_ms=60_000) as at:
        client, large = await at.connect(), await at.connect()
        for each in (client, large):
            await each.log_in()
        at.timers.pass_time(2)
        await large.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        large.writer.write(struct.pack(">i", SASL_FRAME_BYTES_MAX + 1))
        assert await large.frame() is None
        assert (await client.log_in()).error_code == ErrorCode.NONE
        client.send(b"\0\x03" + bytes(3 * SASL_FRAME_BYTES_MAX))
        assert await client.frame() == b"User:alice"


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


async def test_a_session_ends_no_later_than_its_credential() -> None:
    async with world(session_ms=10_000) as at:
        at.mechanism.ends_ms = START_MS + 3_000
        client = await at.connect()
        assert (await client.log_in()).session_lifetime_ms == 3_000


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


async def test_a_wrong_token_is_answered_twice_and_counted_once() -> None:
    async with world() as at:
        client = await at.connect()
        answer = await client.log_in(bearer(valid_s=-5), "OAUTHBEARER")
        assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
        assert at.sasl.counts.failed == 1
        client.request(SaslAuthenticateRequest(auth_bytes=b"\1"), 2)
        await at.until(lambda: DELAY_S in [timer.delay_s for timer in at.timers.waiting])
        at.timers.pass_time(DELAY_S)
        frame = await client.frame()
        assert frame is not None
        assert struct.unpack_from(">h", frame, 5) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)
        assert b'{"status":"invalid_token"}' in frame
        assert await client.frame() is None
        assert at.sasl.counts.failed == 1


async def test_a_session_lasts_no_longer_than_the_maximum() -> None:
    async with world(session_ms=2**63 - 1) as at:
        client = await at.connect()
        assert (await client.log_in()).session_lifetime_ms == SESSION_MS_MAX


async def test_an_immediate_reauthentication_is_refused_and_the_session_continues() -> None:
    async with world(session_ms=10_000) as at:
        client = await at.connect()
        await client.log_in()
        again = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.who() == b"User:alice"
