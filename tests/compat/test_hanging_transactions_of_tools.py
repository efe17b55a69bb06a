"""Kafka's tools find and abort a hanging transaction, and change the feature level of transactions (F08)."""

import re

from confluent_kafka.admin import AdminClient

from drivers.interface import Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from harness.deadline import PATIENCE_S
from harness.server_process import ServerProcess

SERVER = "--bootstrap-server localhost:9092"


def test_kafkas_tool_finds_and_aborts_a_hanging_transaction(
    java: RemoteClient, own_broker: ServerProcess, topic: str
) -> None:
    tools, client = KafkaTools(java, own_broker.bootstrap), LibrdkafkaClient(own_broker.bootstrap)
    client.create_topic(topic, 1, {})
    writer = client.writer(topic)
    writer.write(topic, [Message(b"hangs", partition=0)])
    find = f"kafka-transactions.sh {SERVER} find-hanging --broker-id 1 --max-transaction-timeout 0"
    coordinated = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    coordinated.delete_topics(["__transaction_state"])["__transaction_state"].result(PATIENCE_S)
    assert re.search(rf"{topic}\s+0\s+\d+\s+0\s+-?\d+\s+0\s", tools.check(find))
    tools.check(f"kafka-transactions.sh {SERVER} abort --topic {topic} --partition 0 --start-offset 0")
    assert topic not in tools.check(find)


def test_the_transaction_version_can_be_changed_only_while_no_transaction_is_open(
    java: RemoteClient, own_broker: ServerProcess, topic: str
) -> None:
    tools, client = KafkaTools(java, own_broker.bootstrap), LibrdkafkaClient(own_broker.bootstrap)
    describe = f"kafka-features.sh {SERVER} describe"
    level = r"Feature: transaction.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 2\s+FinalizedVersionLevel: "
    assert re.search(level + "2", tools.check(describe))
    client.create_topic(topic, 1, {})
    writer = client.writer(topic)
    writer.write(topic, [Message(b"open", partition=0)])
    downgrade = f"kafka-features.sh {SERVER} downgrade --feature transaction.version=1"
    refused = tools.run(downgrade)
    assert (refused.status, "transactions are open" in refused.text) == (1, True), refused.text
    writer.end(commit=True)
    tools.check(downgrade)
    assert re.search(level + "1", tools.check(describe))
    tools.check(f"kafka-features.sh {SERVER} upgrade --feature transaction.version=2")
    assert re.search(level + "2", tools.check(describe))
