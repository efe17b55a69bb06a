"""Apache Kafka loads the share group states of our coordinator, and we load those of Apache Kafka."""

from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_core import kafka_uuid
from drivers.broker_under_test import PROPERTIES, prepare_server
from harness.codec_client import Connection
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess

STATES = "__share_group_state"
UPDATES_MAX = 3
ONE_PARTITION = PROPERTIES | {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_MAX),
}
PASSING = (14, 15, 16)

Records = list[tuple[bytes, bytes | None]]


@pytest.mark.soak(only=True)
def test_states_are_loaded_from_the_records_of_the_other_broker(tmp_path: Path) -> None:
    servers = {peer: prepare_server(peer, _made(tmp_path / peer), ONE_PARTITION) for peer in ("barnabas", "kafka")}
    try:
        topics, answers = {}, {}
        for peer, server in servers.items():
            server.start()
            topics[peer] = make_topic(server)
            answers[peer] = write_states(server, topics[peer], f"of-{peer}")
        assert answers["barnabas"] == answers["kafka"]
        records = {peer: read(server) for peer, server in servers.items()}
        for source, target in (("barnabas", "kafka"), ("kafka", "barnabas")):
            write(servers[target], records[source], topics[source], topics[target])
        for server in servers.values():
            server.stop()
            server.start()
        expected = describe(servers["barnabas"], topics["barnabas"], "of-barnabas")
        assert [each["state_epoch"] for each in expected["read"]] == [3, 1, 0]
        assert describe(servers["kafka"], topics["kafka"], "of-barnabas") == expected
        assert describe(servers["barnabas"], topics["barnabas"], "of-kafka") == expected
    finally:
        for server in servers.values():
            server.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def make_topic(server: ServerProcess) -> UUID:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("tasks", 3, 1)])["tasks"].result(PATIENCE_S)
    with Connection(server.port) as connection:
        answer = wait_for(
            lambda: connection.request("Metadata", 12, {"topics": [{"name": "tasks", "topic_id": UUID(int=0)}]}),
            lambda found: found.topics[0].error_code == 0,
        )
    found: UUID = answer.topics[0].topic_id
    return found


def write_states(server: ServerProcess, topic: UUID, group: str) -> list[Any]:
    """Initialize three share-partitions, change one of them, and delete another; return all error codes."""
    with Connection(server.port) as connection:
        key = f"{group}:{kafka_uuid.to_text(topic)}:0"
        wait_for(
            lambda: connection.request("FindCoordinator", 6, {"key_type": 2, "coordinator_keys": [key]}),
            lambda found: found.coordinators[0].error_code == 0,
        )
        ask = partial(ask_state, connection, topic=topic, group=group)
        codes = [
            ask("InitializeShareGroupState", 0, partition=0, state_epoch=3, start_offset=-1),
            ask("InitializeShareGroupState", 0, partition=1, state_epoch=1, start_offset=7),
            ask("InitializeShareGroupState", 0, partition=2, state_epoch=1, start_offset=0),
            ask("InitializeShareGroupState", 0, partition=0, state_epoch=2, start_offset=0),
            ask("ReadShareGroupState", 0, partition=0, leader_epoch=5),
            ask("WriteShareGroupState", 1, partition=0, state_epoch=3, leader_epoch=4, state_batches=[]),
            ask("WriteShareGroupState", 1, partition=0, state_epoch=2, leader_epoch=5, state_batches=[]),
            ask("DeleteShareGroupState", 0, partition=2),
            ask("DeleteShareGroupState", 0, partition=2),
        ]
        for offset in range(UPDATES_MAX + 3):
            batches = [
                {"first_offset": offset, "last_offset": offset + 2, "delivery_state": 0, "delivery_count": 1},
                {"first_offset": offset, "last_offset": offset, "delivery_state": 2, "delivery_count": 2},
            ]
            fields: dict[str, Any] = {"start_offset": offset, "delivery_complete_count": 1, "state_batches": batches}
            codes.append(ask("WriteShareGroupState", 1, partition=0, state_epoch=3, leader_epoch=5, **fields))
    return [found.error_code for found in codes]


def ask_state(connection: Connection, api: str, version: int, *, topic: UUID, group: str, **fields: Any) -> Any:
    """Return the result for one partition, once the coordinator has loaded its log."""
    request = {"group_id": group, "topics": [{"topic_id": topic, "partitions": [fields]}]}
    return wait_for(
        lambda: connection.request(api, version, request).results[0].partitions[0],
        lambda found: found.error_code not in PASSING,
    )


def describe(server: ServerProcess, topic: UUID, group: str) -> dict[str, list[dict[str, Any]]]:
    """Return what the broker answers about the three share-partitions."""
    with Connection(server.port) as connection:
        ask = partial(ask_state, connection, topic=topic, group=group)
        read = [ask("ReadShareGroupState", 0, partition=number, leader_epoch=5) for number in range(3)]
        summaries = [ask("ReadShareGroupStateSummary", 1, partition=number, leader_epoch=5) for number in range(3)]
    return {"read": [fields_of(each) for each in read], "summary": [fields_of(each) for each in summaries]}


def fields_of(found: Any) -> dict[str, Any]:
    """Return the fields of a result but its message, which each broker words itself."""
    batches = [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
        for each in getattr(found, "state_batches", ())
    ]
    names = ("error_code", "state_epoch", "leader_epoch", "start_offset", "delivery_complete_count")
    return {name: getattr(found, name, None) for name in names} | {"batches": batches}


def read(server: ServerProcess) -> Records:
    """Return the records of the states."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(STATES, 0), PATIENCE_S)
    consumer.assign([TopicPartition(STATES, 0, 0)])
    records: Records = []
    while len(records) < end:
        found = consumer.consume(end, 1)
        records += [(message.key() or b"", message.value()) for message in found if message.error() is None]
    consumer.close()
    return records


def write(server: ServerProcess, records: Records, source: UUID, target: UUID) -> None:
    """Write records as only Kafka's own tools may, with the topic id of the other cluster."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "__admin_client"})
    for key, value in records:
        producer.produce(STATES, value, key.replace(source.bytes, target.bytes), 0)
    producer.flush(PATIENCE_S)
