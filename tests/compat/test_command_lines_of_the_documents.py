"""Every command line of the documents, as written, with the tools of Apache Kafka 4 (F54).

Parts that Kafka has removed are adapted: `--broker-list` and `--zookeeper` became `--bootstrap-server`, the topic
is `__consumer_offsets`, and its formatter moved to `org.apache.kafka.tools.consumer.OffsetsMessageFormatter`.
"""

import pytest

from barnabas_core.topic_partition import coordinator_partition
from drivers.interface import Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import wait_for

pytestmark = pytest.mark.soak(only=True)

GROUP = "test_order_to_es_groupId0"


def test_a_topic_is_created_listed_written_and_read_on_the_command_line(tools: KafkaTools) -> None:
    created = tools.check(
        "bin/kafka-topics.sh --create --bootstrap-server localhost:9092"
        " --replication-factor 1 --partitions 1 --topic test"
    )
    assert "Created topic test." in created
    assert "test" in tools.check("bin/kafka-topics.sh --list --bootstrap-server localhost:9092").splitlines()
    tools.check(
        "bin/kafka-console-producer.sh --bootstrap-server localhost:9092 --topic test", "first\nsecond\nthird line\n"
    )
    read = tools.check(
        "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic test --from-beginning --max-messages 3"
    )
    assert read.splitlines() == ["first", "second", "third line"]


def test_the_lag_of_a_group_is_described_with_and_without_members(
    tools: KafkaTools, librdkafka: LibrdkafkaClient, topic: str
) -> None:
    command = f"bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --describe --group {GROUP}"
    librdkafka.create_topic(topic, 1, {})
    librdkafka.produce(topic, [Message(b"v")] * 7)
    member = librdkafka.join(GROUP, "es-writer", [topic])
    wait_for(member.records, lambda records: len(records) == 7)
    member.commit()
    librdkafka.produce(topic, [Message(b"v")] * 5)
    wait_for(member.records, lambda records: len(records) == 12)
    assert offsets_of(tools.check(command), topic) == [["0", "7", "12", "5"]]
    assert "es-writer" in tools.check(command)
    member.leave()
    ran = tools.run(command)
    assert f"Consumer group '{GROUP}' has no active members." in ran.text
    assert offsets_of(ran.output, topic) == [["0", "7", "12", "5"]]


def offsets_of(described: str, topic: str) -> list[list[str]]:
    """Return the partition, committed offset, end offset and lag in each line about the topic."""
    rows = [line.split() for line in described.splitlines()]
    return [row[2:6] for row in rows if len(row) > 5 and row[1] == topic]


def test_a_replication_factor_above_the_number_of_brokers_is_refused(tools: KafkaTools) -> None:
    command = "./bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --topic test2 --partitions 10"
    refused = tools.run(f"{command} --replication-factor 20")
    assert refused.status == 1
    assert "replication" in refused.text.lower()
    assert "Created topic test2." in tools.check(f"{command} --replication-factor 1")
    described = tools.check("./bin/kafka-topics.sh --describe --bootstrap-server localhost:9092 --topic test2")
    assert "PartitionCount: 10" in described
    assert described.count("Leader: 1") == 10


def test_committed_offsets_are_read_from_the_offsets_topic(
    tools: KafkaTools, librdkafka: LibrdkafkaClient, topic: str
) -> None:
    librdkafka.create_topic(topic, 1, {})
    librdkafka.produce(topic, [Message(b"v")] * 3)
    group = next(name for name in (f"{topic}-{n}" for n in range(10_000)) if coordinator_partition(name, 50) == 20)
    member = librdkafka.join(group, "committer", [topic])
    wait_for(member.records, lambda records: len(records) == 3)
    member.commit()
    member.leave()
    shown = tools.check(
        "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic __consumer_offsets --partition 20"
        " --formatter org.apache.kafka.tools.consumer.OffsetsMessageFormatter --offset earliest --timeout-ms 2000"
    )
    (line,) = [line for line in shown.splitlines() if group in line]
    assert f'"topic":"{topic}"' in line
    assert '"offset":3' in line
