"""The mark that a reset leaves in a group's offset metadata, with every client: commits of clients keep it."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas_core.group_lag import reset_mark
from barnabas_core.topic_partition import TopicPartition as Where
from barnabas_kafka.connection import connected_client
from barnabas_operator.kafka.group_admin import GroupAdmin, Refused
from barnabas_operator.planning.groups.reset_plan import Committed
from drivers.interface import Client, Message
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess

MARK = reset_mark("2026-11-a", ("2026-10-z",))


@pytest.fixture(autouse=True)
def ours(peer: str) -> None:
    if peer != "barnabas":
        pytest.skip("only our brokers keep the mark")


@pytest.fixture
def connected(broker: ServerProcess) -> Iterator[Any]:
    client = connected_client(broker.bootstrap, PATIENCE_S, "operator")
    yield client
    client.close()


def reset(connected: Any, group: str, offset: int) -> Refused | None:
    offsets = {Where(group, number): Committed(offset, metadata=MARK) for number in (0, 1)}
    return GroupAdmin(connected, nullcontext).commit(group, offsets)


def committed(connected: Any, group: str) -> dict[int, tuple[int, str]]:
    found = GroupAdmin(connected, nullcontext).describe([group]).groups[group].committed
    return {where.partition: (each.offset, each.metadata) for where, each in found.items()}


@pytest.fixture
def filled(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """A topic of two partitions with ten records in each; the group has the topic's name."""
    librdkafka.create_topic(topic, 2, {})
    librdkafka.produce(topic, [Message(b"%d" % number, partition=number % 2) for number in range(20)])
    return topic


def test_a_consumer_starts_at_the_reset_offset_and_its_commits_keep_the_mark(
    client: Client, connected: Any, filled: str
) -> None:
    wait_for(lambda: reset(connected, filled, 6) is None)  # The coordinator may still load its groups.
    member = client.join(filled, "member", [filled])
    read = wait_for(member.records, lambda records: len(records) == 8)
    assert {each.offset for each in read} == {6, 7, 8, 9}
    member.commit()
    member.leave()
    assert committed(connected, filled) == {0: (10, MARK), 1: (10, MARK)}
    assert client.committed(filled, filled) == {0: 10, 1: 10}


def test_a_reset_is_refused_if_members_joined_after_the_group_was_described(
    client: Client, connected: Any, filled: str
) -> None:
    admin = GroupAdmin(connected, nullcontext)
    assert not admin.describe([filled]).groups[filled].is_active
    member = client.join(filled, "member", [filled])
    wait_for(member.records, lambda records: len(records) == 20)
    member.commit()
    before = committed(connected, filled)
    refused = reset(connected, filled, 1)
    assert refused is not None
    assert refused.has_members
    assert committed(connected, filled) == before
    member.leave()
    wait_for(lambda: reset(connected, filled, 1), lambda refused: refused is None)
    assert committed(connected, filled) == {0: (1, MARK), 1: (1, MARK)}


def test_confluent_kafka_reads_the_mark_and_its_commits_keep_or_replace_it(
    broker: ServerProcess, connected: Any, filled: str
) -> None:
    wait_for(lambda: reset(connected, filled, 6) is None)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": filled})
    for _ in range(20):
        (told,) = consumer.committed([TopicPartition(filled, 0)], PATIENCE_S)
        assert told.metadata == MARK.rstrip("\0")
    consumer.commit(offsets=[TopicPartition(filled, 0, 7, metadata="")], asynchronous=False)
    assert committed(connected, filled)[0] == (7, MARK)
    consumer.commit(offsets=[TopicPartition(filled, 0, 8, metadata="at gate 4")], asynchronous=False)
    assert committed(connected, filled)[0] == (8, "at gate 4\0")
    consumer.close()
