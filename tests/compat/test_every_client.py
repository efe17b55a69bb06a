"""The basic use of a broker by each client library: produce, consume, rebalance, commit, administrate."""

from collections.abc import Callable, Sequence

import pytest

from drivers.broker_under_test import KEPT_FOR_EVER
from drivers.interface import Assignment, Client, Member, Message, Received, value_of
from harness.deadline import wait_for

RECORDS = 200


def keyed_messages(count: int) -> list[Message]:
    return [Message(value=b"value %d" % n, key=b"key %d" % (n % 17)) for n in range(count)]


def values(records: Sequence[Message | Received]) -> list[bytes]:
    return sorted(value_of(record) for record in records)


def shares(members: list[Member]) -> list[Assignment]:
    return [member.assignment() for member in members]


def fairly_shared(topic: str, partitions: int) -> Callable[[list[Assignment]], bool]:
    """Return a check that each partition has one member, and that no member has two more than another."""
    everything = {(topic, partition) for partition in range(partitions)}

    def check(assignments: list[Assignment]) -> bool:
        sizes = [len(assignment) for assignment in assignments]
        once = sum(sizes) == partitions and set().union(*assignments) == everything
        return once and max(sizes) - min(sizes) <= 1

    return check


def test_records_are_read_back_in_order_with_headers_and_timestamps(client: Client, topic: str) -> None:
    client.create_topic(topic, 2, KEPT_FOR_EVER)
    sent = [
        Message(b"%d" % n, b"k", partition=n % 2, timestamp_ms=1_700_000_000_000 + n, headers=(("h", b"%d" % n),))
        for n in range(RECORDS)
    ]
    client.produce(topic, sent)
    records = client.read(topic, RECORDS)
    for partition in (0, 1):
        read = sorted((r for r in records if r.partition == partition), key=lambda r: r.offset)
        assert [r.offset for r in read] == list(range(RECORDS // 2))
        expected = [(m.value, m.key, m.timestamp_ms, m.headers) for m in sent if m.partition == partition]
        assert [(r.value, r.key, r.timestamp_ms, r.headers) for r in read] == expected


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_level_writes_every_record(client: Client, topic: str, acks: str) -> None:
    client.create_topic(topic, 1, {})
    client.produce(topic, keyed_messages(RECORDS), acks=acks)
    assert values(client.read(topic, RECORDS)) == values(keyed_messages(RECORDS))


def test_an_idempotent_producer_writes_each_record_once(client: Client, topic: str) -> None:
    client.create_topic(topic, 3, {})
    client.produce(topic, keyed_messages(RECORDS), idempotent=True)
    assert values(client.read(topic, RECORDS)) == values(keyed_messages(RECORDS))


def test_two_members_share_a_group_and_one_takes_over_when_the_other_leaves(client: Client, topic: str) -> None:
    client.create_topic(topic, 4, {})
    client.produce(topic, keyed_messages(RECORDS))
    first = client.join(topic, "first", [topic])
    wait_for(lambda: shares([first]), fairly_shared(topic, 4))
    wait_for(first.records, lambda records: len(records) == RECORDS)
    first.commit()
    second = client.join(topic, "second", [topic])
    wait_for(lambda: shares([first, second]), fairly_shared(topic, 4))
    client.produce(topic, keyed_messages(RECORDS))
    wait_for(lambda: len(first.records()) + len(second.records()), lambda count: count == 2 * RECORDS)
    assert values(first.records() + second.records()) == values(keyed_messages(RECORDS) * 2)
    second.commit()
    first.commit()
    before = len(second.records())
    first.leave()
    wait_for(lambda: shares([second]), fairly_shared(topic, 4))
    client.produce(topic, keyed_messages(RECORDS))
    wait_for(second.records, lambda records: len(records) == before + RECORDS)
    second.commit()
    second.leave()
    wait_for(lambda: sum(client.committed(topic, topic).values()), lambda total: total == 3 * RECORDS)


def test_two_groups_each_get_every_record(client: Client, topic: str) -> None:
    client.create_topic(topic, 2, {})
    client.produce(topic, keyed_messages(RECORDS))
    members = [client.join(f"{topic}-{name}", f"{name}-member", [topic]) for name in ("a", "b")]
    for member in members:
        wait_for(member.records, lambda records: len(records) == RECORDS)
        assert values(member.records()) == values(keyed_messages(RECORDS))
        member.leave()


def test_offsets_are_looked_up_by_timestamp(client: Client, topic: str) -> None:
    client.create_topic(topic, 1, KEPT_FOR_EVER)
    start = 1_700_000_000_000
    for batch in range(4):
        client.produce(topic, [Message(b"v", timestamp_ms=start + 100 * batch + n) for n in range(10)])
    assert client.offsets_for_time(topic, start + 105) == {0: 15}
    assert client.offsets_for_time(topic, start + 110) == {0: 20}


def test_topics_are_created_grown_configured_and_deleted(client: Client, topic: str) -> None:
    client.create_topic(topic, 2, {"retention.ms": "3600000"})
    # A broker reports a change once its own view of the metadata has it.
    wait_for(lambda: client.topics().get(topic), lambda partitions: partitions == 2)
    assert client.topic_configs(topic)["retention.ms"] == "3600000"
    client.create_partitions(topic, 5)
    wait_for(lambda: client.topics().get(topic), lambda partitions: partitions == 5)
    client.alter_topic_config(topic, "max.message.bytes", "2000000")
    wait_for(lambda: client.topic_configs(topic)["max.message.bytes"], lambda value: value == "2000000")
    client.delete_topic(topic)
    wait_for(client.topics, lambda topics: topic not in topics)


def test_fewer_partitions_and_a_second_topic_with_the_same_name_are_refused(client: Client, topic: str) -> None:
    client.create_topic(topic, 2, {})
    with pytest.raises(Exception, match=r"(?i)partition"):
        client.create_partitions(topic, 1)
    with pytest.raises(Exception, match=r"(?i)exists"):
        client.create_topic(topic, 2, {})
    wait_for(lambda: client.topics().get(topic), lambda partitions: partitions == 2)
