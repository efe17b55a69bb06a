"""A follower's Fetch is accepted only on the inter-broker listener."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from barnabas_broker.handlers import fetch
from barnabas_broker.handlers.channel import Channel, Client
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.model import BrokerRegistration
from barnabas_broker.wire.fetch import FetchRequest
from barnabas_broker.wire.framing import FileSlice, Part
from barnabas_broker.wire.replica_fetch import parse_replica_fetch_response
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ErrorCode

REQUEST = FetchRequest(2, 1, 500, 1, 1 << 20, 0, 0, 0, [], [])
CONFIG = parse_broker_config(
    {
        "listeners": "CLIENTS://:9092,BROKERS://:9093",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
)


class Followers:
    """Followers that note each accepted request."""

    def __init__(self) -> None:
        self.fetched: list[FetchRequest] = []

    def fetch(self, request: FetchRequest, answer: Any) -> None:
        self.fetched.append(request)


def registered(listener: str) -> BrokerRegistration:
    """Return the registration of broker 2 with this inter-broker listener."""
    return BrokerRegistration(2, UUID(int=2), (), inter_broker_listener=listener)


@pytest.mark.parametrize(
    ("brokers", "listener", "passes"),
    [
        ({}, "BROKERS", True),
        ({}, "CLIENTS", False),
        ({2: registered("")}, "BROKERS", True),
        ({2: registered("NEW")}, "NEW", True),
        ({2: registered("NEW")}, "BROKERS", False),
        ({3: registered("CLIENTS")}, "CLIENTS", False),
    ],
)
def test_a_follower_can_fetch_only_on_its_inter_broker_listener_and_is_a_suspect_when_its_connection_closes(
    brokers: dict[int, BrokerRegistration], listener: str, passes: bool
) -> None:
    followers, sent, suspects = Followers(), list[list[Part]](), list[tuple[int, int]]()
    parts: Any = SimpleNamespace(
        authorizer=None,
        config=CONFIG,
        followers=followers,
        image=SimpleNamespace(brokers=brokers),
        suspect=lambda *each: suspects.append(each),
    )
    client = Client(listener, "127.0.0.1:5")
    channel = cast(Channel, SimpleNamespace(client=client, answer=sent.append, when_closed=[]))
    fetch.answer_replica_fetch(cast(HandlerEnvironment, parts), channel, 17, 7, REQUEST)
    assert followers.fetched == [REQUEST] * passes
    for each in channel.when_closed:
        each(channel)
    assert suspects == [(REQUEST.replica_id, REQUEST.replica_epoch)] * passes
    frames = [b"".join(bytes(part) for part in parts if not isinstance(part, FileSlice)) for parts in sent]
    errors = [parse_replica_fetch_response(memoryview(frame)[4:]).error for frame in frames]
    assert errors == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * (not passes)
