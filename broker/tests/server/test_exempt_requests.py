"""Requests between brokers are not throttled, and those of clients that only pretend to be brokers are."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_broker.handlers import fetch
from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.handler_environment import ClientQuotas
from barnabas_broker.metadata.model import ClientQuotasDocument, EntityQuotas
from barnabas_broker.server.dispatch import count_time, throttle_message, throttled
from barnabas_broker.wire.framing import FETCH, RequestHeader
from harness.manual_clock import ManualClock

WRITE_TXN_MARKERS, ADD_PARTITIONS, METADATA = 27, 24, 3
OF_EVERYBODY = EntityQuotas({"user": None}, {"request_percentage": 0.001, "consumer_byte_rate": 1.0})
FOLLOWERS_FETCH = struct.pack(">iiiibiiiih", 7, 0, 0, 1000, 0, 0, 0, 0, 0, 0)


class Cluster:
    """A broker with quotas for everybody; `may_act_as_broker` is None without an authorizer."""

    def __init__(self, may_act_as_broker: bool | None, inter_broker: str) -> None:
        image: Any = SimpleNamespace(document=lambda _: ClientQuotasDocument((OF_EVERYBODY,)), subscribe=lambda _: None)
        rights = SimpleNamespace(may_see=lambda *_: may_act_as_broker)
        authorizer = None if may_act_as_broker is None else SimpleNamespace(rights=lambda *_: rights)
        self.muted: list[float] = []
        self.sent: list[Any] = []
        self.environment: Any = SimpleNamespace(
            suspect=lambda *_: None,
            quotas=ClientQuotas(image, ManualClock(), None if inter_broker == "CLIENTS" else inter_broker),
            authorizer=authorizer,
            config=SimpleNamespace(listeners=SimpleNamespace(inter_broker=inter_broker)),
        )
        self.connection: Any = SimpleNamespace(
            when_closed=[],
            client=Client("CLIENTS", "10.0.0.1:1", "c", "User:eve"),
            answers=SimpleNamespace(mute=self.muted.append),
            answer=self.sent.extend,
            trust=None,
            turn=None,
            request_is_read=lambda: None,
            close=lambda: None,
        )


CLUSTERS = [
    (Cluster(False, "CLIENTS"), True),
    (Cluster(True, "CLIENTS"), False),
    (Cluster(None, "CLIENTS"), False),
    (Cluster(None, "BROKERS"), True),
]


@pytest.mark.parametrize(("cluster", "is_throttled"), CLUSTERS)
@pytest.mark.parametrize(("api_key", "version"), [(WRITE_TXN_MARKERS, 1), (ADD_PARTITIONS, 4), (METADATA, 9)])
def test_a_request_that_only_brokers_may_send_is_throttled_if_the_client_may_not(
    cluster: Cluster, is_throttled: bool, api_key: int, version: int
) -> None:
    header, response = RequestHeader(api_key, version, 1, "c", 0), SimpleNamespace(throttle_time_ms=0)
    cluster.muted.clear()
    count_time(cluster.environment, cluster.connection, header, took_s=1_000)
    throttle_message(cluster.environment, cluster.connection, header, response)
    expected = is_throttled or api_key == METADATA
    assert (bool(cluster.muted), response.throttle_time_ms > 0) == (expected, expected)


@pytest.mark.parametrize(("cluster", "is_throttled"), CLUSTERS)
def test_a_fetch_of_a_client_that_pretends_to_be_a_follower_is_refused_and_throttled(
    cluster: Cluster, is_throttled: bool
) -> None:
    handle = throttled(
        FETCH, lambda _, channel, version, correlation, *__: fetch.refuse_follower(channel, version, correlation)
    )
    limits = cluster.connection.client.limits(cluster.environment.quotas)
    assert limits is not None
    limits.request_share.count(1_000)
    cluster.muted.clear()
    cluster.sent.clear()
    handle(cluster.environment, cluster.connection, 11, 1, memoryview(FOLLOWERS_FETCH), 0, len(FOLLOWERS_FETCH))
    _, _, throttle_ms, error = struct.unpack_from(">iiih", cluster.sent[0])
    assert (bool(cluster.muted), throttle_ms > 0, error) == (is_throttled, is_throttled, 31)
