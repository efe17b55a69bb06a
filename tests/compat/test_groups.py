"""Special cases of consumer groups: foreign commits, static members, mixed clients, commit metadata (F44 to F49)."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from drivers.interface import GROUP_PROTOCOL, Message
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient, RemoteError
from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import StockClient

only_classic = pytest.mark.skipif(GROUP_PROTOCOL != "classic", reason="it is about the classic protocol")


@pytest.fixture
def filled(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """A topic of two partitions with ten records in each."""
    librdkafka.create_topic(topic, 2, {})
    librdkafka.produce(topic, [Message(b"%d" % n, partition=n % 2) for n in range(20)])
    return topic


@pytest.fixture
def admin(librdkafka: LibrdkafkaClient) -> AdminClient:
    return AdminClient(librdkafka.settings)


def test_a_consumer_outside_a_group_can_commit_only_when_the_group_is_empty(
    librdkafka: LibrdkafkaClient, java: RemoteClient, filled: str
) -> None:
    member = librdkafka.join(filled, "member", [filled])
    wait_for(member.records, lambda records: len(records) == 20)
    member.commit()
    with pytest.raises(RemoteError, match="CommitFailedException"):
        java.ask("stranger_commits", group=filled, topic=filled, offset=3)
    assert librdkafka.committed(filled, filled) == {0: 10, 1: 10}
    member.leave()
    java.ask("stranger_commits", group=filled, topic=filled, offset=3)
    assert librdkafka.committed(filled, filled) == {0: 3, 1: 10}


def test_a_returning_static_member_gets_its_partitions_without_a_rebalance(
    librdkafka: LibrdkafkaClient, admin: AdminClient, filled: str
) -> None:
    first, second = (
        librdkafka.join(filled, name, [filled], **{"group.instance.id": name}) for name in ("first", "second")
    )
    wait_for(lambda: [len(member.assignment()) for member in (first, second)], lambda sizes: sizes == [1, 1])
    before = {"first": first.assignment(), "second": second.assignment()}
    second.leave()
    # The static member keeps its partitions until its session ends.
    assert instances(admin, filled) == before
    again = librdkafka.join(filled, "second", [filled], **{"group.instance.id": "second"})
    wait_for(again.assignment, lambda held: held == before["second"])
    assert first.assignment() == before["first"]
    first.leave()
    again.leave()


def instances(admin: AdminClient, group: str) -> dict[str, frozenset[tuple[str, int]]]:
    """Return the partitions of each static member, as the coordinator reports them."""
    described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
    # While a static member is away, a group of the consumer protocol is Reconciling, which this client does not know.
    is_away = GROUP_PROTOCOL == "consumer" and described.state == ConsumerGroupState.UNKNOWN
    assert is_away or described.state == ConsumerGroupState.STABLE
    return {
        member.group_instance_id: frozenset((p.topic, p.partition) for p in member.assignment.topic_partitions)
        for member in described.members
    }


@only_classic
def test_a_second_static_member_with_the_same_id_fences_the_first(librdkafka: LibrdkafkaClient, filled: str) -> None:
    options = {"group.instance.id": "same"}
    first = librdkafka.join(filled, "first", [filled], **options)
    wait_for(first.assignment, lambda held: len(held) == 2)
    second = librdkafka.join(filled, "second", [filled], **options)
    wait_for(second.assignment, lambda held: len(held) == 2)
    with pytest.raises(KafkaException, match=r"_FATAL|FENCED_INSTANCE_ID"):
        wait_for(first.assignment, lambda held: not held)
    second.leave()


def test_commits_without_group_members_keep_their_metadata(librdkafka: LibrdkafkaClient, filled: str) -> None:
    consumer: Consumer = librdkafka.consumer(**{"group.id": filled})
    StockClient(str(librdkafka.settings["bootstrap.servers"])).commit(filled, TopicPartition(filled, 0, 7, "a note"))
    consumer.commit(offsets=[TopicPartition(filled, 1, 8)], asynchronous=True)
    wait_for(lambda: librdkafka.committed(filled, filled), lambda offsets: offsets == {0: 7, 1: 8})
    (noted,) = consumer.committed([TopicPartition(filled, 0)], timeout=PATIENCE_S)
    assert (noted.offset, noted.metadata) == (7, "a note")
    with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
        consumer.commit(offsets=[TopicPartition(filled, 0, 9, "x" * 5_000)], asynchronous=False)
    consumer.close()


@only_classic
def test_different_client_libraries_share_one_group(
    clients: Callable[[str], Any], librdkafka: LibrdkafkaClient, topic: str
) -> None:
    librdkafka.create_topic(topic, 6, {})
    # All of them offer the range assignor.
    java = clients("java").join(
        topic,
        "java",
        [topic],
        config={"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor"},
    )
    members = [
        java,
        librdkafka.join(topic, "librdkafka", [topic]),
        clients("kafka-python").join(topic, "python", [topic]),
    ]
    everything = {(topic, partition) for partition in range(6)}

    def shared(assignments: list[frozenset[tuple[str, int]]]) -> bool:
        return [len(held) for held in assignments] == [2, 2, 2] and set().union(*assignments) == everything

    wait_for(lambda: [member.assignment() for member in members], shared)
    librdkafka.produce(topic, [Message(b"%d" % n, partition=n % 6) for n in range(60)])
    wait_for(lambda: [len(member.records()) for member in members], lambda counts: counts == [20, 20, 20])
    for member in members:  # A member that leaves changes the others' partitions, so all commit first.
        member.commit()
    assert librdkafka.committed(topic, topic) == dict.fromkeys(range(6), 10)
    for member in members:
        member.leave()
