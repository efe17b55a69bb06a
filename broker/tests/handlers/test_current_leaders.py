"""Responses to Produce and Fetch from a broker that is not the leader name the leader and its address (KIP-951)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from one_replica import FLIGHTS, HERE, OTHER, led
from producing_broker import TOPIC_ID, Client, Producing, true_batch

from barnabas_broker.handlers import fetch
from barnabas_broker.metadata.documents import broker_key, topic_key
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, TopicDocument
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ErrorCode

ADDRESSES = (Endpoint("INTERNAL", "10.0.0.2", 9091), Endpoint("PLAINTEXT", "two.example", 9092))


def broker_led_by(folder: Path, leader: int, *, fenced: bool = False) -> Producing:
    """Return a broker with two partitions that another broker leads, in leader epoch 5."""
    broker = Producing(folder)
    states = (led(leader, 5, OTHER, partition_epoch=9, replicas=2),) * 2
    broker.show_only(
        (topic_key(FLIGHTS.topic), TopicDocument(FLIGHTS.topic, TOPIC_ID, states, {})),
        (broker_key(OTHER), BrokerRegistration(OTHER, UUID(int=2), ADDRESSES, rack="b", fenced=fenced)),
    )
    broker.timers.pass_time(0)
    return broker


def named(leader: Any, endpoints: Sequence[Any] | None) -> tuple[Any, ...]:
    known = None if leader is None else (leader.leader_id, leader.leader_epoch)
    return known, [(each.node_id, each.host, each.port, each.rack) for each in endpoints or ()]


@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_produce_response_names_the_leader_and_its_address(tmp_path: Path, version: int) -> None:
    client = Client(broker_led_by(tmp_path, OTHER), version=version)
    client.begin(bytes(true_batch()))
    answer = client.response()
    (result,) = answer.responses[0].partition_responses
    assert result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert named(result.current_leader, answer.node_endpoints) == (
        ((OTHER, 5), [(OTHER, "two.example", 9092, "b")]) if version >= 10 else (None, [])
    )


@pytest.mark.parametrize("version", [15, 16, 18])
@pytest.mark.parametrize(
    ("epoch", "error"), [(-1, ErrorCode.NOT_LEADER_OR_FOLLOWER), (4, ErrorCode.FENCED_LEADER_EPOCH)]
)
def test_a_fetch_response_names_the_leader_and_contains_its_address_once(
    tmp_path: Path, version: int, epoch: int, error: ErrorCode
) -> None:
    answer = fetched(broker_led_by(tmp_path, OTHER), version, epoch)
    results = answer.responses[0].partitions
    assert [each.error_code for each in results] == [error] * 2
    expected = ((OTHER, 5), [(OTHER, "two.example", 9092, "b")]) if version >= 16 else (None, [])
    assert [named(each.current_leader, answer.node_endpoints) for each in results] == [expected] * 2


def fetched(broker: Producing, version: int, epoch: int) -> Any:
    topic = FetchRequest.FetchTopic
    partitions = [
        topic.FetchPartition(
            partition=number, current_leader_epoch=epoch, fetch_offset=0, log_start_offset=-1, partition_max_bytes=1000
        )
        for number in range(2)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[topic(topic_id=TOPIC_ID, partitions=partitions)],
        forgotten_topics_data=[],
        rack_id="",
    )
    body, client = bytearray(request.encode(version=version)), Client(broker)
    services: Any = broker.handler_environment
    fetch.handle(services, client, version, 7, memoryview(body), 0, len(body))
    return FetchResponse.decode(b"".join(map(bytes, client.answers)), version=version, header=True, framed=True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("leader", "fenced", "expected"), [(NO_LEADER, False, (None, [])), (OTHER, True, ((OTHER, 5), []))]
)
def test_a_response_has_no_address_of_a_missing_or_fenced_leader(
    tmp_path: Path, leader: int, fenced: bool, expected: tuple[Any, ...]
) -> None:
    client = Client(broker_led_by(tmp_path, leader, fenced=fenced))
    client.begin(bytes(true_batch()))
    answer = client.response()
    assert named(answer.responses[0].partition_responses[0].current_leader, answer.node_endpoints) == expected


def test_a_produce_response_that_waits_for_replicas_names_the_new_leader(tmp_path: Path) -> None:
    broker = broker_led_by(tmp_path, OTHER)
    registration = (broker_key(OTHER), BrokerRegistration(OTHER, UUID(int=2), ADDRESSES))

    def led_by(leader: int, epoch: int) -> None:
        document = TopicDocument(FLIGHTS.topic, TOPIC_ID, (led(leader, epoch, HERE, OTHER, replicas=2),), {})
        broker.show_only((topic_key(FLIGHTS.topic), document), registration)

    led_by(HERE, 10)
    client = Client(broker)
    client.begin(bytes(true_batch()), acks=-1)
    led_by(OTHER, 11)
    broker.timers.pass_time(0)
    answer = client.response()
    (result,) = answer.responses[0].partition_responses
    assert (result.error_code, result.current_leader.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 11)
    assert [each.node_id for each in answer.node_endpoints] == [OTHER]
