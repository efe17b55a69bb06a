"""Damaged frames before authentication: each is answered, refused or closes its connection; none authenticates."""

from collections.abc import Callable
from random import Random
from typing import Any
from unittest.mock import AsyncMock

import pytest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.large_responses import CloseConnection
from barnabas_broker.security.sasl.key_set import parse_key_set
from barnabas_broker.security.sasl.oauth_bearer import OAuthBearer
from barnabas_broker.security.sasl.scram import Mechanism, Plain, Scram
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES, credential_of
from barnabas_broker.security.sasl.token_keys import FetchTimes, TokenKeys, TokenRules
from barnabas_broker.server.answers import LateAnswer
from barnabas_broker.server.sasl_session import DEADLINE_S, Logins, SaslListener, SaslSession
from barnabas_broker.wire.framing import MalformedRequest, Part
from harness.manual_clock import START_MS
from harness.manual_loop_clock import ManualLoopClock
from harness.manual_timers import ManualTimers
from harness.soak import seed, size
from harness.tokens import Issuer

CASES = size(3_000, 100_000)
ISSUER = Issuer()
TOKENS = (
    b"\0alice\0wrong",
    b"n,,n=alice,r=client",
    b"c=biws,r=clientserver,p=" + b"A" * 42 + b"g==",
    b"n,a=alice,n=alice,r=client,x=y",
    b"n,,\1auth=Bearer " + ISSUER.token("alice", now_s=START_MS / 1000, aud="another").encode() + b"\1\1",
    b"n,,\1auth=Bearer " + b"W1tb" * 3000 + b".W1tb.AA\1\1",
    b"\1",
    b"",
)


class FuzzedConnection:
    """A connection that drops all responses."""

    def __init__(self) -> None:
        self.peer, self.client = "fuzz", Client("X", "10.0.0.1:1")
        self.when_closed: list[object] = []
        self.deferred: list[LateAnswer] = []

    def defer(self) -> Callable[[list[Part]], None]:
        self.deferred.append(LateAnswer(mutes=True))
        return lambda _: None

    def answer(self, _: list[Part]) -> None:
        pass

    def close(self, _: str | None = None) -> None:
        pass


def encoded(request: Any, version: int) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="fuzz")
    return bytes(request.encode(header=True, framed=True))[4:]


def damaged(random: Random, frame: bytes) -> bytes:
    """The frame, or one with some of its bytes changed, left out or doubled."""
    changed = bytearray(frame)
    for _ in range(random.choice((0, 0, 1, 2, 8))):
        if changed:
            place = random.randrange(len(changed))
            changed[place : place + random.randrange(3)] = random.randbytes(random.randrange(3))
    return bytes(changed)


@pytest.mark.soak
def test_damaged_frames_authenticate_no_client() -> None:
    random, timers = Random(seed()), ManualTimers()
    kind = SCRAM_HASHES["SCRAM-SHA-256"]
    users = {"alice": credential_of(kind, b"k" * 32, b"salt", 4096)}
    keys = TokenKeys("file:///keys", AsyncMock(), FetchTimes(1, 1, 1), ManualLoopClock())
    keys.current = parse_key_set(ISSUER.key_set())
    mechanisms: dict[str, Mechanism] = {
        "PLAIN": Plain({"alice": "secret"}),
        kind.mechanism: Scram(kind, users.get, b"secret", lambda: "server"),
        "OAUTHBEARER": OAuthBearer(keys, TokenRules(("barnabas",), None, 30), timers.clock.now_ms),
    }
    clock, logins = timers.clock, Logins(timers, timers.clock, None, DEADLINE_S)
    never = dict.fromkeys(mechanisms, 0)
    listener = SaslListener("X", mechanisms, never, 0.1, 524_288, clock, timers, lambda *_: print, logins)
    served: list[bytes] = []
    for _ in range(CASES):
        connection: Any = FuzzedConnection()
        session = SaslSession(listener, lambda _, buffer, *__: served.append(bytes(buffer[:2])), 1_000_000)
        session.begin(connection)
        frames = [encoded(SaslHandshakeRequest(mechanism=random.choice([*mechanisms])), random.randrange(2))]
        frames += [
            encoded(SaslAuthenticateRequest(auth_bytes=token), random.randrange(3)) if random.random() < 0.7 else token
            for token in random.choices(TOKENS, k=3)
        ]
        try:
            for frame in frames:
                sent = damaged(random, frame)
                session(connection, memoryview(sent), 0, len(sent))
        except (MalformedRequest, CloseConnection):
            pass
    assert listener.counts.succeeded_first == 0
    assert listener.counts.failed > CASES / 20
    assert set(served) <= {b"\0\x12"}  # ApiVersions.
