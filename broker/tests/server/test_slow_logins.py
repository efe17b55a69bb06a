"""Logins whose password is checked in a thread."""

import asyncio
import threading
from collections.abc import Callable

import pytest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from sasl_world import GOOD, world

from barnabas_broker.server.sasl_session import DEADLINE_S, SUBMITTED_MAX, PasswordThread
from barnabas_core.errors import ErrorCode


async def test_a_slow_password_check_delays_only_its_own_client() -> None:
    async with world() as at:
        slow, other = await at.connect(), await at.connect()
        await slow.ask(SaslHandshakeRequest(mechanism="SLOW"), 1)
        at.slow.goes_on.clear()
        slow.request(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        slow.request(MetadataRequest(topics=[]), 4)
        assert (await other.log_in()).error_code == ErrorCode.NONE
        assert await other.who() == b"User:alice"
        assert at.sasl.counts.succeeded_first == 1
        at.slow.goes_on.set()
        assert await slow.frame() is not None
        assert await slow.frame() == b"User:alice", "a request sent during the check is served after it"


async def test_a_login_whose_connection_was_closed_during_the_check_does_not_count() -> None:
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism="SLOW"), 1)
        at.slow.goes_on.clear()
        client.request(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        await at.until(lambda: at.timers.waiting)
        at.timers.pass_time(DEADLINE_S)
        assert await client.frame() is None
        at.slow.goes_on.set()
        assert (await (await at.connect()).log_in(mechanism="SLOW")).error_code == ErrorCode.NONE
        assert at.sasl.counts.succeeded_first == 1


async def test_a_bug_in_a_password_check_ends_only_that_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as at:
        right, at.slow.compute = at.slow.compute, lambda: bytes(1 // 0)
        client = await at.connect()
        assert await client.log_in(mechanism="SLOW") is None
        at.slow.compute = right
        assert (await (await at.connect()).log_in(mechanism="SLOW")).error_code == ErrorCode.NONE
    assert "bug in the SASL authentication of 127.0.0.1:" in caplog.text


async def test_an_address_that_tries_many_passwords_delays_others_by_a_few_passwords_only() -> None:
    ended: list[str] = []
    loop, goes_on = asyncio.get_running_loop(), threading.Event()
    thread = PasswordThread(loop)

    def login(address: str) -> Callable[[], object]:
        return thread(address, lambda: b"" if goes_on.wait(60) else b"late", lambda _: ended.append(address))

    guesses = [login("10.0.0.1") for _ in range(100)]
    for address in ("10.0.0.2", "10.0.0.3", "10.0.0.2"):
        login(address)
    guesses.pop()()
    assert not ended
    goes_on.set()
    async with asyncio.timeout(60):
        while len(ended) < 102:
            await asyncio.sleep(0.001)
    assert ended[: SUBMITTED_MAX + 5].count("10.0.0.1") == SUBMITTED_MAX + 2
    assert ended.count("10.0.0.1") == 99
    assert not thread._waiting
    thread.close()
