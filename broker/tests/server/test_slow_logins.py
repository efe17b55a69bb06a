"""Logins whose check waits for the thread of passwords."""

import pytest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from sasl_world import GOOD, world

from barnabas_core.errors import ErrorCode


async def test_a_password_in_the_thread_holds_up_its_own_client_only() -> None:
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
        assert await slow.frame() == b"User:alice", "what was sent meanwhile is served afterwards"


async def test_of_a_client_that_is_gone_nothing_is_checked() -> None:
    async with world() as at:
        client = await at.connect()
        await client.ask(SaslHandshakeRequest(mechanism="SLOW"), 1)
        at.slow.goes_on.clear()
        client.request(SaslAuthenticateRequest(auth_bytes=GOOD), 2)
        await at.until(lambda: at.timers.waiting)
        at.timers.pass_time(at.sasl.deadline_s)
        assert await client.frame() is None
        at.slow.goes_on.set()
        assert (await (await at.connect()).log_in(mechanism="SLOW")).error_code == ErrorCode.NONE
        assert at.sasl.counts.succeeded_first == 1


async def test_a_bug_in_the_thread_costs_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as at:
        right, at.slow.compute = at.slow.compute, lambda: bytes(1 // 0)
        client = await at.connect()
        assert await client.log_in(mechanism="SLOW") is None
        at.slow.compute = right
        assert (await (await at.connect()).log_in(mechanism="SLOW")).error_code == ErrorCode.NONE
    assert "bug in the SASL authentication of 127.0.0.1:" in caplog.text
