"""The acknowledgements of a share group as requests, to our broker or Apache Kafka: a good path, and strange ones."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from functools import partial
from operator import eq
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Message

from drivers.broker_under_test import BrokerWith
from harness.codec_client import Connection
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from harness.stock_client import StockClient

QUEUE = {
    "share.auto.offset.reset": "earliest",
    "errors.deadletterqueue.topic.name": "dlq.jobs",
    "errors.deadletterqueue.copy.record.enable": "true",
}
GROUP = 32
FETCH_VERSION = 2
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@pytest.fixture
def broker(broker_with: BrokerWith) -> ServerProcess:
    return broker_with({"group.share.record.lock.duration.ms": "15000"})


@pytest.fixture
def client(broker: ServerProcess) -> StockClient:
    client = StockClient(broker.bootstrap)
    client.create_topic("jobs")
    client.create_topic("dlq.jobs", 1, {"errors.deadletterqueue.group.enable": "true"})
    with Connection(broker.port) as connection:
        for name, value in QUEUE.items():
            configure(connection, "workers", name, value)
    return client


def configure(connection: Connection, group: str, name: str, value: str) -> None:
    configs = [{"name": name, "config_operation": 0, "value": value}]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    answer = connection.request("IncrementalAlterConfigs", 1, {"resources": [resource]})
    assert not answer.responses[0].error_code, answer


def test_records_are_accepted_released_and_rejected_to_the_dead_letters(
    client: StockClient, broker: ServerProcess
) -> None:
    client.send("jobs", [b"job %d" % number for number in range(6)])
    with Connection(broker.port) as connection:
        member = Member(connection, initialized(connection))
        assert member.acquired(0) == [(0, 5, 1)]
        assert member.acknowledged(1, (0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [REJECT]), (3, 5, [ACCEPT])) == 0
        assert member.acquired(2) == [(1, 1, 2)]
        assert member.acknowledged(3, (1, 1, [ACCEPT])) == 0
    letter = dead_letter(client)
    assert letter.value() == b"job 2"
    headers = dict(letter.headers() or ())
    assert headers["__dlq.errors.offset"] == b"2"
    assert headers["__dlq.errors.message"] == b"Offset rejected by client."


def initialized(connection: Connection) -> UUID:
    """Initialize the state of the group, as its coordinator does; return the topic's id."""
    topic_id: UUID = connection.request("Metadata", 12, {"topics": [{"name": "jobs"}]}).topics[0].topic_id
    key = f"workers:{urlsafe_b64encode(topic_id.bytes).decode().rstrip('=')}:0"
    state = {"topic_id": topic_id, "partitions": [{"partition": 0, "state_epoch": 1, "start_offset": -1}]}
    wait_for(
        lambda: connection.request("FindCoordinator", 6, {"key_type": 2, "coordinator_keys": [key]}).coordinators[0],
        lambda coordinator: not coordinator.error_code,
    )
    wait_for(
        lambda: connection.request("InitializeShareGroupState", 0, {"group_id": "workers", "topics": [state]}),
        lambda answer: not answer.results[0].partitions[0].error_code,
    )
    return topic_id


def dead_letter(client: StockClient) -> Message:
    reader = Consumer({**client.settings, "group.id": "reader", "auto.offset.reset": "earliest"})
    reader.subscribe(["dlq.jobs"])
    try:
        letter = wait_for(lambda: reader.poll(1.0), lambda found: found is not None)
        assert letter is not None
        return letter
    finally:
        reader.close()


def test_strange_acknowledgements_get_their_errors_and_others_are_served(
    client: StockClient, broker: ServerProcess
) -> None:
    client.send("jobs", [b"job %d" % number for number in range(10)])
    with Connection(broker.port) as connection:
        topic_id = initialized(connection)
        member = Member(connection, topic_id)
        assert member.acquired(0) == [(0, 9, 1)]
        errors = [
            member.acknowledged(1, (0, 0, [ACCEPT]), (0, 0, [ACCEPT])),
            member.acknowledged(2, (5, 3, [ACCEPT])),
            member.acknowledged(3, (0, 3, [ACCEPT, ACCEPT])),
            member.acknowledged(4, (0, 0, [9])),
            member.acknowledged(5, (0, 0, [RENEW])),
            member.acknowledged(6, (9, 10, [ACCEPT])),
            member.acknowledged(7, (100, 200, [REJECT])),
        ]
        assert errors == [121, 42, 42, 42, 42, 42, 42]
        stranger = Member(connection, topic_id, "stranger")
        assert stranger.fetch(0).error_code == 0
        assert stranger.acknowledged(1, (0, 0, [ACCEPT])) == 121
        assert member.request("ShareAcknowledge", 99, []).error_code == 123
        assert Member(connection, topic_id, "nobody").request("ShareAcknowledge", 1, []).error_code == 122
        assert member.acknowledged(8, (0, 8, [ACCEPT]), (9, 9, [RELEASE])) == 0
        assert stranger.acquired(2) == [(9, 9, 2)]


def test_records_are_archived_without_dead_letters_while_the_topic_for_them_is_missing_or_not_enabled_or_the_source(
    client: StockClient, broker: ServerProcess
) -> None:
    client.create_topic("plain")
    client.send("jobs", [b"job %d" % number for number in range(5)])
    with Connection(broker.port) as connection:
        member = Member(connection, initialized(connection))
        assert member.acquired(0) == [(0, 4, 1)]
        for number, name in enumerate(("missing", "plain", "jobs")):
            configure(connection, "workers", "errors.deadletterqueue.topic.name", name)
            assert member.acknowledged(number + 1, (number, number, [REJECT])) == 0
            wait_for(member.finished, partial(eq, number + 1))
        configure(connection, "workers", "errors.deadletterqueue.topic.name", "dlq.jobs")
        assert member.acknowledged(4, (3, 3, [REJECT]), (4, 4, [ACCEPT])) == 0
        wait_for(member.finished, lambda count: count == 5)
    assert dict(dead_letter(client).headers() or ())["__dlq.errors.offset"] == b"3"
    assert client.read("jobs") == [b"job %d" % number for number in range(5)]


class Member:
    """A member that speaks the protocol itself."""

    def __init__(self, connection: Connection, topic_id: UUID, member_id: str = "member") -> None:
        self._connection = connection
        self._topic_id = topic_id
        self._member_id = member_id

    def request(self, api: str, epoch: int, batches: Sequence[Mapping[str, Any]], **fields: object) -> Any:
        partitions = [{"partition_index": 0, "acknowledgement_batches": batches}]
        values = {"group_id": "workers", "member_id": self._member_id, "share_session_epoch": epoch}
        topics = [{"topic_id": self._topic_id, "partitions": partitions}]
        return self._connection.request(api, FETCH_VERSION, {**values, "topics": topics, **fields})

    def fetch(self, epoch: int, **fields: object) -> Any:
        limits = {"min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        return self.request("ShareFetch", epoch, [], **limits, **fields)

    def acquired(self, epoch: int) -> list[tuple[int, int, int]]:
        """Return the first offset, last offset and delivery count of the acquired ranges."""
        answer = self.fetch(epoch, max_wait_ms=10_000)
        assert not answer.error_code, answer
        ranges = [each for topic in answer.responses for one in topic.partitions for each in one.acquired_records]
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in ranges]

    def acknowledged(self, epoch: int, *batches: tuple[int, int, list[int]]) -> int:
        """Return the error code of the partition."""
        fields = [
            {"first_offset": first, "last_offset": last, "acknowledge_types": types} for first, last, types in batches
        ]
        answer = self.request("ShareAcknowledge", epoch, fields)
        assert not answer.error_code, answer
        return int(answer.responses[0].partitions[0].error_code)

    def finished(self) -> int:
        """Return the number of records from offset 0 on that are stored as final."""
        partitions = [{"partition": 0, "leader_epoch": 0}]
        asked = {"group_id": "workers", "topics": [{"topic_id": self._topic_id, "partitions": partitions}]}
        answer = self._connection.request("ReadShareGroupStateSummary", 1, asked)
        (state,) = answer.results[0].partitions
        assert not state.error_code, answer
        return max(int(state.start_offset), 0) + max(int(state.delivery_complete_count), 0)
