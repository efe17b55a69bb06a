"""Records, topics, groups and producers survive a crash and an orderly stop of a broker."""

from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from drivers.interface import Message, value_of
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from harness.soak import size

TOPIC, GROUP = "restarted", "readers"
RECORDS = 500
End = Callable[[ServerProcess], None]


def crash(server: ServerProcess) -> None:
    server.kill()


def stop(server: ServerProcess) -> None:
    server.stop()


@pytest.mark.soak
@pytest.mark.parametrize("end", size([stop], [crash, stop]))
def test_groups_records_and_configs_survive_a_restart(own_broker: ServerProcess, end: End) -> None:
    client = LibrdkafkaClient(own_broker.bootstrap)
    client.create_topic(TOPIC, 3, {"retention.ms": "7777777"})
    client.produce(TOPIC, [Message(b"%d" % n, key=b"%d" % n) for n in range(RECORDS)])
    member = client.join(GROUP, "member", [TOPIC])
    wait_for(member.records, lambda records: len(records) == RECORDS)
    member.commit()
    committed = client.committed(GROUP, TOPIC)
    member.leave()
    before = {(r.partition, r.offset, r.key, r.value, r.timestamp_ms) for r in client.read(TOPIC, RECORDS)}
    end(own_broker)
    own_broker.start()
    assert {(r.partition, r.offset, r.key, r.value, r.timestamp_ms) for r in client.read(TOPIC, RECORDS)} == before
    assert client.topic_configs(TOPIC)["retention.ms"] == "7777777"
    client = LibrdkafkaClient(own_broker.bootstrap)
    wait_for(lambda: committed_when_loaded(client), lambda offsets: offsets == committed)
    admin = AdminClient(client.settings)
    described = admin.describe_consumer_groups([GROUP])[GROUP].result(PATIENCE_S)
    assert described.state == ConsumerGroupState.EMPTY
    client.produce(TOPIC, [Message(b"after")])
    again = client.join(GROUP, "again", [TOPIC])
    wait_for(again.records, lambda records: [r.value for r in records] == [b"after"])
    again.leave()


def committed_when_loaded(client: LibrdkafkaClient) -> dict[int, int] | None:
    """Return the group's offsets, or None while the coordinator loads them."""
    try:
        return client.committed(GROUP, TOPIC)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.COORDINATOR_LOAD_IN_PROGRESS:
            raise
        return None


@pytest.mark.soak
@pytest.mark.parametrize("end", size([crash], [crash, stop]))
def test_members_and_idempotent_producers_continue_after_a_restart(own_broker: ServerProcess, end: End) -> None:
    client = LibrdkafkaClient(own_broker.bootstrap)
    client.create_topic(TOPIC, 2, {})
    members = [client.join(GROUP, name, [TOPIC]) for name in ("a", "b")]
    wait_for(lambda: [len(member.assignment()) for member in members], lambda sizes: sizes == [1, 1])
    errors = []
    producer = Producer({**client.settings, "enable.idempotence": True, "linger.ms": 1})

    def produce(first: int) -> None:
        for n in range(first, first + RECORDS):
            producer.produce(TOPIC, b"%d" % n, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0)

    produce(0)
    assert producer.flush(PATIENCE_S) == 0
    end(own_broker)
    produce(RECORDS)
    own_broker.start()
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * (2 * RECORDS)
    expected = sorted(b"%d" % n for n in range(2 * RECORDS))
    assert sorted(value_of(r) for r in client.read(TOPIC, 2 * RECORDS)) == expected

    def read_by_both() -> set[bytes]:
        return {value_of(record) for member in members for record in member.records()}

    wait_for(read_by_both, lambda values: len(values) == 2 * RECORDS)
    wait_for(lambda: [len(member.assignment()) for member in members], lambda sizes: sizes == [1, 1])
    for member in members:  # A member that leaves makes the other one join again, so both commit first.
        member.commit()
    for member in members:
        member.leave()
    assert sum(client.committed(GROUP, TOPIC).values()) == 2 * RECORDS
