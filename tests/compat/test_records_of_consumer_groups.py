"""Apache Kafka loads the records of our consumer groups (KIP-848), and we load those of Apache Kafka."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from drivers.broker_under_test import PROPERTIES, prepare_server
from harness.codec_client import Connection
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess

OFFSETS = "__consumer_offsets"
ONE_PARTITION = PROPERTIES | {
    "offsets.topic.num.partitions": "1",
    "group.consumer.max.session.timeout.ms": "600000",
    "group.consumer.session.timeout.ms": "600000",
}


@pytest.mark.soak(only=True)
def test_groups_are_loaded_from_the_records_of_the_other_broker(tmp_path: Path) -> None:
    servers = {peer: prepare_server(peer, _made(tmp_path / peer), ONE_PARTITION) for peer in ("barnabas", "kafka")}
    try:
        described = {}
        for peer, server in servers.items():
            server.start()
            make_group(server, f"of-{peer}")
            # Apache Kafka matches regular expressions later, and then begins one more epoch.
            described[peer] = wait_for(partial(describe, server, f"of-{peer}"), lambda found: found["epochs"][0] == 4)
        records = {peer: read(server) for peer, server in servers.items()}
        write(servers["kafka"], records["barnabas"])
        write(servers["barnabas"], records["kafka"])
        for server in servers.values():
            server.stop()
            server.start()
        assert describe(servers["kafka"], "of-barnabas") == described["barnabas"]
        assert describe(servers["barnabas"], "of-kafka") == described["kafka"]
    finally:
        for server in servers.values():
            server.close()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def make_group(server: ServerProcess, group: str) -> None:
    """Let three members join, one of them static and one with a regular expression, and stop in the middle."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic("flights", 6, 1)])["flights"].result(PATIENCE_S)
    with Connection(server.port) as connection:
        joining = {"group_id": group, "member_epoch": 0, "rebalance_timeout_ms": 60_000, "topic_partitions": []}
        first = {"member_id": "a", "instance_id": "one", "subscribed_topic_names": ["flights"]}
        answer = wait_for(lambda: beat(connection, **joining, **first), lambda answer: answer.error_code == 0)
        wait_for(
            lambda: beat(
                connection, group_id=group, member_id="a", instance_id="one", member_epoch=answer.member_epoch
            ),
            lambda found: found.member_epoch == 2,
        )
        beat(connection, **joining, member_id="b", rack_id="r", subscribed_topic_regex="fl.*")
        beat(
            connection, **joining, member_id="c", subscribed_topic_names=["flights", "absent"], server_assignor="range"
        )


def beat(connection: Connection, **fields: Any) -> Any:
    """Send a heartbeat, and return the answer."""
    connection.request("FindCoordinator", 4, {"coordinator_keys": [fields["group_id"]]})
    return connection.request("ConsumerGroupHeartbeat", 1, fields)


def describe(server: ServerProcess, group: str) -> dict[str, Any]:
    """Return what the broker says about a group, without the partitions, whose topics the other broker lacks."""
    with Connection(server.port) as connection:
        (found,) = wait_for(
            lambda: connection.request("ConsumerGroupDescribe", 1, {"group_ids": [group]}).groups,
            lambda groups: groups[0].error_code in (0, 69),
        )
    members = {
        member.member_id: (
            member.instance_id,
            member.rack_id,
            member.member_epoch,
            member.client_id,
            sorted(member.subscribed_topic_names),
            member.subscribed_topic_regex,
            member.member_type,
        )
        for member in found.members
    }
    epochs = found.group_epoch, found.assignment_epoch
    return {"error": found.error_code, "state": found.group_state, "epochs": epochs, "members": members}


def read(server: ServerProcess) -> list[tuple[bytes | None, bytes | None]]:
    """Return the records of the groups."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    partition = TopicPartition(OFFSETS, 0)
    _, end = consumer.get_watermark_offsets(partition, PATIENCE_S)
    consumer.assign([TopicPartition(OFFSETS, 0, 0)])
    records: list[tuple[bytes | None, bytes | None]] = []
    while len(records) < end:
        records += [(message.key(), message.value()) for message in consumer.consume(end, 1) if message.error() is None]
    consumer.close()
    return records


def write(server: ServerProcess, records: list[tuple[bytes | None, bytes | None]]) -> None:
    """Write records of groups as only Kafka's own tools may."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "client.id": "__admin_client"})
    for key, value in records:
        producer.produce(OFFSETS, value, key, 0)
    producer.flush(PATIENCE_S)
