"""Answers that clients of Kafka 4.4 expect; the expected values are those of Apache Kafka 4.4.0."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas_broker.handlers import table, users
from barnabas_broker.handlers.channel import ANONYMOUS, Client, RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.encoder import encode_request
from barnabas_broker.wire.messages import message_class
from barnabas_core.config.listeners import SecurityProtocol

CLUSTER, BROKER = "4L6g3nShT-eMCtK--X86sw", 3
REQUEST_HEADER_BYTES = 4 + 8 + 2 + len("a") + 1


def environment(protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT) -> HandlerEnvironment:
    image = SimpleNamespace(cluster_id=CLUSTER, features={}, version=lambda _: 0)
    listeners = SimpleNamespace(protocols={"ONE": protocol})
    config = SimpleNamespace(listeners=listeners)
    return cast("HandlerEnvironment", SimpleNamespace(image=image, broker_id=BROKER, config=config))


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "error"),
    [
        (None, -1, 0),
        (CLUSTER, BROKER, 0),
        ("other", BROKER, 129),
        (CLUSTER, BROKER + 1, 129),
        (CLUSTER, -2, 129),
        ("", BROKER, 129),
        (CLUSTER, -1, 42),
        (None, BROKER, 42),
        ("other", -1, 42),
        (None, BROKER + 1, 42),
    ],
)
def test_a_client_that_reaches_another_broker_than_it_expects_bootstraps_again(
    cluster_id: str | None, node_id: int, error: int
) -> None:
    request = message_class("ApiVersionsRequest")(
        client_software_name="a", client_software_version="1", cluster_id=cluster_id, node_id=node_id
    )
    sent = memoryview(encode_request(request, 5, 1, "a"))
    answers: list[Any] = []
    channel: Any = SimpleNamespace(answer=answers.extend)
    table.answer_api_versions(environment(), channel, 5, 1, sent, REQUEST_HEADER_BYTES, len(sent))
    assert int.from_bytes(answers[0][8:10], "big") == error


@pytest.mark.parametrize("api", ["Create", "Renew", "Expire", "Describe"])
@pytest.mark.parametrize(
    ("protocol", "principal", "error"),
    [
        (SecurityProtocol.PLAINTEXT, ANONYMOUS, 64),
        (SecurityProtocol.SSL, ANONYMOUS, 64),
        (SecurityProtocol.SSL, "User:CN=alice", 61),
        (SecurityProtocol.SASL_SSL, "User:alice", 61),
    ],
)
def test_requests_for_delegation_tokens_have_the_error_of_a_kafka_without_a_key(
    api: str, protocol: SecurityProtocol, principal: str, error: int
) -> None:
    context = RequestContext(38, 3, Client("ONE", "127.0.0.1:5", principal=principal))
    request = message_class(f"{api}DelegationTokenRequest")()
    assert users.delegation_token(environment(protocol), context, request).error_code == error


@pytest.mark.parametrize(("owner_type", "owner", "shown"), [(None, None, "ANONYMOUS"), ("User", "bob", "bob")])
def test_a_refused_delegation_token_names_owner_and_requester_and_no_time(
    owner_type: str | None, owner: str | None, shown: str
) -> None:
    context = RequestContext(38, 3, Client("ONE", "127.0.0.1:5"))
    request = message_class("CreateDelegationTokenRequest")(owner_principal_type=owner_type, owner_principal_name=owner)
    response = users.delegation_token(environment(), context, request)
    assert (response.principal_type, response.principal_name) == ("User", shown)
    assert (response.token_requester_principal_type, response.token_requester_principal_name) == ("User", "ANONYMOUS")
    assert (response.issue_timestamp_ms, response.expiry_timestamp_ms, response.max_timestamp_ms) == (-1, -1, -1)
