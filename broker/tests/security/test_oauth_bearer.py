"""OAUTHBEARER's messages, and keys that change while the broker runs."""

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from barnabas_broker.security.sasl.key_set import TokenKey, parse_key_set
from barnabas_broker.security.sasl.oauth_bearer import INVALID_TOKEN, MESSAGE_BYTES_MAX, OAuthBearer
from barnabas_broker.security.sasl.scram import AuthenticationFailed, Identity
from barnabas_broker.security.sasl.token_keys import EARLIEST_S, FetchTimes, KeysUnavailable, TokenKeys, TokenRules
from harness.manual_clock import START_MS
from harness.manual_loop_clock import ManualLoopClock
from harness.tokens import AUDIENCE, ISSUER, Issuer

RULES = TokenRules((AUDIENCE,), ISSUER, 0)
FIRST, SECOND = Issuer("first"), Issuer("second")
TIMES = FetchTimes(refresh_s=3600, backoff_s=0.1, backoff_s_max=0.3)


class Endpoint:
    """The URL of a JWK set, with its answers one after the other."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers: Iterator[bytes | None] = iter(answers)
        self.clock = ManualLoopClock()
        self.keys = TokenKeys("file:///keys", self.fetch, TIMES, self.clock)
        self.mechanism = OAuthBearer(self.keys, RULES, self.clock.now_ms)

    async def fetch(self) -> tuple[TokenKey, ...]:
        answer = next(self.answers)
        if answer is None:
            raise KeysUnavailable("away")
        return parse_key_set(answer)

    async def turns(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


def loaded() -> OAuthBearer:
    endpoint = Endpoint(FIRST.key_set())
    asyncio.run(endpoint.keys.load())
    return endpoint.mechanism


MECHANISM = loaded()


def token(issuer: Issuer = FIRST, user: str = "alice") -> bytes:
    return issuer.token(user, now_s=START_MS / 1000).encode()


def message(text: bytes, gs2: bytes = b"n,,", extensions: bytes = b"") -> bytes:
    return gs2 + b"\1auth=Bearer " + text + b"\1" + extensions + b"\1"


@pytest.mark.parametrize(
    "text",
    [
        message(token()),
        message(token(), b"n,a=alice,"),
        message(token(), extensions=b"traceId=1\1host=b.example.org\1"),
        message(token()).replace(b"Bearer", b"bearer  "),
        message(token(user="al,=ié"), "n,a=al=2C=3Dié,".encode()),
    ],
    ids=count(1),
)
def test_a_token_authenticates_its_user_until_it_expires(text: bytes) -> None:
    answer = MECHANISM.begin().answer(text)
    assert answer.token == b""
    assert isinstance(answer.identity, Identity)
    assert (answer.identity.user[:2], answer.identity.expires_at_ms) == ("al", START_MS + 60_000)


@pytest.mark.parametrize("text", [message(token(SECOND)), message(b"x"), message(token(), b"n,a=bob,")], ids=count(1))
@pytest.mark.parametrize("then", [b"\1", b"", message(token())], ids=count(1))
def test_a_wrong_token_gets_the_same_refusal_for_every_cause(text: bytes, then: bytes) -> None:
    dialogue = MECHANISM.begin()
    answer = dialogue.answer(text)
    assert (answer.token, answer.identity) == (INVALID_TOKEN.encode(), None)
    assert answer.refusal
    with pytest.raises(AuthenticationFailed) as refused:
        dialogue.answer(then)
    assert refused.value.for_client == INVALID_TOKEN


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\1",
        b"\xff" * 20,
        token(),
        message(token(), b"y,,"),
        message(token(), b"p=tls-unique,,"),
        message(token(), b"n,a=,"),
        message(token(), extensions=b"auth\1"),
        message(token(), extensions=b"1=2\1"),
        message(token())[:-1],
        message(token()) + b"\1",
        message(token()).replace(b"Bearer", b"Basic"),
        message(b""),
        message(b"a b"),
        message(b"a\0b"),
        message(b"a" * MESSAGE_BYTES_MAX),
    ],
    ids=count(1),
)
def test_a_malformed_message_is_refused_at_once(text: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        MECHANISM.begin().answer(text)
    assert refused.value.for_client is None


def lets_in(endpoint: Endpoint, issuer: Issuer) -> bool:
    text = issuer.token("alice", now_s=endpoint.clock.now_ms() / 1000).encode()
    return endpoint.mechanism.begin().answer(message(text)).identity is not None


async def test_keys_are_fetched_periodically_and_kept_while_the_url_does_not_answer() -> None:
    endpoint = Endpoint(FIRST.key_set(), None, None, None, SECOND.key_set())
    await endpoint.keys.load()
    following = asyncio.ensure_future(endpoint.keys.follow())
    for pause_s in (EARLIEST_S, TIMES.refresh_s - EARLIEST_S, 0.1, 0.2, 0.3):
        await endpoint.turns()
        assert endpoint.clock.waits_s == [pytest.approx(pause_s)]
        assert lets_in(endpoint, FIRST)
        endpoint.clock.pass_time(pause_s)
    await endpoint.turns()
    assert lets_in(endpoint, SECOND)
    assert not lets_in(endpoint, FIRST)
    following.cancel()


async def test_unknown_keys_trigger_an_early_fetch_but_not_a_flood_of_them() -> None:
    endpoint = Endpoint(FIRST.key_set(), FIRST.key_set(), SECOND.key_set())
    await endpoint.keys.load()
    following = asyncio.ensure_future(endpoint.keys.follow())
    for _ in range(2):
        for _ in range(100):
            assert not lets_in(endpoint, SECOND)
            await endpoint.turns()
        endpoint.clock.pass_time(EARLIEST_S)
        await endpoint.turns()
    assert lets_in(endpoint, SECOND)
    following.cancel()
