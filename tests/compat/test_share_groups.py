"""Share groups (KIP-932) with librdkafka's share consumer, and Kafka's tools."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from drivers.interface import Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from harness.codec_client import Connection
from harness.deadline import PATIENCE_S, wait_for

SERVER = "--bootstrap-server localhost:9092"


@pytest.fixture
def filled(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """A topic of two partitions with ten records in each, and a share group of its name that reads from its start."""
    librdkafka.create_topic(topic, 2, {})
    librdkafka.produce(topic, [Message(b"%d" % n, partition=n % 2) for n in range(20)])
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[earliest])
    admin = AdminClient(librdkafka.settings)
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    return topic


@contextmanager
def worker(librdkafka: LibrdkafkaClient, group: str, **options: Any) -> Iterator[ShareConsumer]:
    """A member of the group, which subscribes to the topic of its name."""
    consumer = ShareConsumer({**librdkafka.settings, "group.id": group, **options})
    consumer.subscribe([group])
    try:
        yield consumer
    finally:
        consumer.close()


def taken(consumer: ShareConsumer, values: Counter[bytes]) -> Counter[bytes]:
    """Take the next records, count their values, and return the counts so far."""
    values.update(message.value() or b"" for message in consumer.poll(1.0) if message.error() is None)
    return values


def test_members_share_the_records_of_a_topic(librdkafka: LibrdkafkaClient, filled: str) -> None:
    values: Counter[bytes] = Counter()
    with worker(librdkafka, filled) as first, worker(librdkafka, filled) as second:
        wait_for(lambda: taken(second, taken(first, values)), lambda found: len(found) == 20)
    assert set(values) == {b"%d" % n for n in range(20)}


def test_a_record_that_is_released_comes_again_and_one_that_is_rejected_does_not(
    librdkafka: LibrdkafkaClient, filled: str
) -> None:
    values: Counter[bytes] = Counter()
    with worker(librdkafka, filled, **{"share.acknowledgement.mode": "explicit"}) as consumer:

        def work() -> Counter[bytes]:
            for message in consumer.poll(1.0):
                assert message.error() is None
                value = message.value() or b""
                values[value] += 1
                kind = AcknowledgeType.ACCEPT
                if value == b"3":
                    kind = AcknowledgeType.REJECT
                elif value == b"4" and values[b"4"] == 1:
                    kind = AcknowledgeType.RELEASE
                consumer.acknowledge(message, kind)
            consumer.commit_sync()
            return values

        wait_for(work, lambda found: len(found) == 20 and found[b"4"] == 2)
    assert values[b"3"] == 1


def test_offsets_are_described_altered_and_deleted(librdkafka: LibrdkafkaClient, filled: str) -> None:
    values: Counter[bytes] = Counter()
    with worker(librdkafka, filled) as consumer:
        wait_for(lambda: taken(consumer, values), lambda found: len(found) == 20)
    with Connection(int(str(librdkafka.settings["bootstrap.servers"]).rpartition(":")[2])) as connection:
        altered = {"topic_name": filled, "partitions": [{"partition_index": 0, "start_offset": 3}]}
        request = {"group_id": filled, "topics": [altered]}
        connection.request("FindCoordinator", 4, {"coordinator_keys": [filled]})
        wait_for(lambda: connection.request("AlterShareGroupOffsets", 0, request).error_code, lambda code: code == 0)
        described = {"groups": [{"group_id": filled, "topics": None}]}
        (group,) = connection.request("DescribeShareGroupOffsets", 1, described).groups
        starts = {each.partition_index: (each.start_offset, each.lag) for each in group.topics[0].partitions}
        assert starts[0] == (3, 7)
        topics = {"group_id": filled, "topics": [{"topic_name": filled}]}
        deleted = connection.request("DeleteShareGroupOffsets", 0, topics)
        assert [each.error_code for each in deleted.responses] == [0]
        (result,) = connection.request("DeleteGroups", 2, {"groups_names": [filled]}).results
        assert result.error_code == 0


def test_tools_show_reset_and_delete_a_group(tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str) -> None:
    group = f"kafka-share-groups.sh {SERVER} --group {filled}"
    values: Counter[bytes] = Counter()
    with worker(librdkafka, filled, **{"client.id": "the-member"}) as consumer:
        wait_for(lambda: taken(consumer, values), lambda found: len(found) == 20)
        consumer.commit_sync()
        assert filled in tools.check(f"kafka-share-groups.sh {SERVER} --list").splitlines()
        assert "the-member" in tools.check(f"{group} --describe --members")
        assert "Stable" in tools.check(f"{group} --describe --state")
    wait_for(lambda: tools.check(f"{group} --describe --state"), lambda state: "Empty" in state)
    described = wait_for(lambda: lags(tools.check(f"{group} --describe --offsets")), lambda found: len(found) == 2)
    assert set(described.values()) == {"0"}
    tools.check(f"{group} --reset-offsets --topic {filled} --to-earliest --execute")
    assert set(lags(tools.check(f"{group} --describe --offsets")).values()) == {"10"}
    tools.check(f"{group} --delete-offsets --topic {filled}")
    tools.check(f"{group} --delete")
    assert filled not in tools.check(f"kafka-share-groups.sh {SERVER} --list").splitlines()


def lags(described: str) -> dict[str, str]:
    """Return the lag of each partition, as the tool prints it: GROUP TOPIC PARTITION START-OFFSET LAG."""
    rows = [line.split() for line in described.splitlines() if line.strip()]
    return {row[2]: row[4] for row in rows if len(row) >= 5 and row[2].isdigit()}
