"""Broker settings that clients notice, each on its own broker (F10, F12, F26, F28)."""

import json
import socket
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from confluent_kafka import KafkaException
from kafka.protocol.metadata import MetadataRequest

from barnabas_core.errors import ErrorCode
from drivers.broker_under_test import BrokerWith
from drivers.interface import Message, value_of
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from harness.ask import ask
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess

TOPIC = "observed"
SHORT_TIMEOUT: Final[dict[str, Any]] = {"message.timeout.ms": 3_000}


def test_a_record_for_a_missing_topic_is_refused_without_automatic_creation(broker_with: BrokerWith) -> None:
    client = LibrdkafkaClient(broker_with({"auto.create.topics.enable": "false"}).bootstrap)
    with pytest.raises(KafkaException, match=r"UNKNOWN_TOPIC|MSG_TIMED_OUT"):
        client.produce(TOPIC, [Message(b"v")], **SHORT_TIMEOUT)
    assert TOPIC not in client.topics()


def test_created_topics_have_the_brokers_number_of_partitions(broker_with: BrokerWith) -> None:
    client = LibrdkafkaClient(broker_with({"num.partitions": "4"}).bootstrap)
    client.produce(TOPIC, [Message(b"v")])
    assert client.topics()[TOPIC] == 4


def test_an_idle_connection_is_closed(broker_with: BrokerWith) -> None:
    server = broker_with({"connections.max.idle.ms": "500"})
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_S) as idle:
        assert idle.recv(1) == b""


def log_dirs_of(tools: KafkaTools) -> dict[str, list[str]]:
    """Return the partitions of the topic in each log dir, as kafka-log-dirs.sh reports them."""
    shown = tools.check(f"kafka-log-dirs.sh --bootstrap-server localhost:9092 --describe --topic-list {TOPIC}")
    (described,) = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    dirs = described["brokers"][0]["logDirs"]
    return {one["logDir"]: [p["partition"] for p in one["partitions"] if not p["isFuture"]] for one in dirs}


def test_partitions_are_spread_over_log_dirs_and_moved_between_them(
    broker_with: BrokerWith, java: RemoteClient, tmp_path: Path
) -> None:
    first, second = str(tmp_path / "disk-a"), str(tmp_path / "disk-b")
    server = broker_with({"log.dirs": f"{first},{second}"})
    client, tools = LibrdkafkaClient(server.bootstrap), KafkaTools(java, server.bootstrap)
    client.create_topic(TOPIC, 6, {})
    messages = [Message(b"%d" % n, partition=n % 6) for n in range(600)]
    client.produce(TOPIC, messages)
    assert [len(partitions) for partitions in log_dirs_of(tools).values()] == [3, 3]
    moved = log_dirs_of(tools)[first][0]
    elsewhere = {"bootstrap.servers": server.bootstrap}
    partition = int(moved.rpartition("-")[2])
    java.ask("move_replica", topic=TOPIC, partition=partition, broker=1, log_dir=second, config=elsewhere)
    client.produce(TOPIC, messages)
    wait_for(lambda: log_dirs_of(tools)[second], lambda partitions: moved in partitions)
    assert moved not in log_dirs_of(tools)[first]
    assert sorted(value_of(r) for r in client.read(TOPIC, 1_200)) == sorted(value_of(m) for m in messages * 2)


def test_metadata_does_not_create_the_transaction_state_topic(own_broker: ServerProcess) -> None:
    """The first search for a coordinator creates it. Kafka creates it here, too, but gives the same error."""
    host, _, port = own_broker.bootstrap.rpartition(":")
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(topic_id=UUID(int=0), name="__transaction_state")],
        allow_auto_topic_creation=True,
    )
    (found,) = ask(int(port), request, version=12, host=host).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
