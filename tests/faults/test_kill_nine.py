"""F22: the broker process is killed repeatedly in the middle of its work."""

import operator
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from faulty_broker import FaultyBroker
from started_brokers import StartBroker

from harness.deadline import PATIENCE_S, wait_for
from harness.soak import size
from harness.stock_client import StockClient, records_given

ROUNDS = size(3, 50)
COMMITS_EVERY = size(1, 10)
"""The rounds after which the group commits."""
RECORDS_A_ROUND = 300
PARTITIONS = 3
SEGMENT_BYTES = 1024 * 1024


class Writer:
    """A stock producer that writes numbered records to every partition and keeps which were acknowledged."""

    def __init__(self, client: StockClient, topic: str, **settings: object) -> None:
        forever = {"message.timeout.ms": 600_000, "linger.ms": 1, "acks": "all"}
        # By default a producer checks only once a second whether a broker is up again.
        eager = {"enable.sparse.connections": False}
        chosen = {name.replace("_", "."): value for name, value in settings.items()}
        self._producer = Producer({**client.settings, **forever, **eager, **chosen})
        self._topic = topic
        self.sent = 0
        self.acknowledged: list[tuple[int, int]] = []
        self.errors: list[str] = []

    def send(self, count: int) -> None:
        """Send `count` records; number n goes to partition n % 3."""
        for number in range(self.sent, self.sent + count):
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
        self.sent += count

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.errors.append(str(error))
        else:
            self.acknowledged.append((int(message.value()), message.offset()))

    def acknowledged_now(self) -> int:
        self._producer.poll(0.001)
        return len(self.acknowledged)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0
        assert not self.errors


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_kills_while_clients_produce_lose_duplicate_and_reorder_no_record(start_broker: StartBroker) -> None:
    broker = start_broker()
    client = broker.client
    client.create_topic("idempotent", PARTITIONS)
    client.create_topic("plain", PARTITIONS)
    idempotent = Writer(client, "idempotent", enable_idempotence=True)
    plain = Writer(client, "plain", enable_idempotence=False, max_in_flight_requests_per_connection=1)
    member = client.consumer("readers", session_timeout_ms=45_000)
    member.subscribe(["idempotent"])
    got: set[int] = set()
    for round_number in range(ROUNDS):
        before = idempotent.acknowledged_now() + plain.acknowledged_now()
        idempotent.send(RECORDS_A_ROUND)
        plain.send(RECORDS_A_ROUND)
        wanted = before + 1 + round_number * RECORDS_A_ROUND // ROUNDS
        wait_for(lambda: idempotent.acknowledged_now() + plain.acknowledged_now(), partial(operator.le, wanted))
        got |= numbers_in(records_given(member, 0.01))
        if round_number % COMMITS_EVERY == 0:
            commit_all(member, got)
        broker.server.kill()
        broker.server.start()
    idempotent.finish()
    plain.finish()
    check_log(client, idempotent)
    check_acknowledged(client, plain)
    wait_for(lambda: take(member, got) == idempotent.sent)
    committed = commit_all(member, got)
    broker.server.kill()
    broker.server.start()
    assert committed_of(client, committed) == committed
    idempotent.send(30)
    idempotent.finish()
    wait_for(lambda: take(member, got) == idempotent.sent)
    member.close()


def numbers_in(messages: list[Any]) -> set[int]:
    return {int(each.value()) for each in messages if each.error() is None}


def take(member: Consumer, got: set[int]) -> int:
    got |= numbers_in(records_given(member, 0.1))
    return len(got)


def commit_all(member: Consumer, got: set[int]) -> dict[int, int]:
    """Commit the positions, and retry until it succeeds; return the committed offsets by partition."""
    committed = wait_for(lambda: committed_now(member, got), lambda found: found is not None)
    assert committed is not None
    return committed


def committed_now(member: Consumer, got: set[int]) -> dict[int, int] | None:
    """Commit once; return None if that fails. A member that was removed from its group joins again only in a poll."""
    known = [each for each in member.position(member.assignment()) if each.offset >= 0]
    try:
        if not known or all(each.error is None for each in member.commit(offsets=known, asynchronous=False)):
            return {each.partition: each.offset for each in known}
    except KafkaException:
        pass
    take(member, got)
    return None


def committed_of(client: StockClient, partitions: dict[int, int]) -> dict[int, int]:
    consumer = client.consumer("readers")
    asked = [TopicPartition("idempotent", partition) for partition in partitions]
    found = consumer.committed(asked, timeout=PATIENCE_S)
    consumer.close()
    return {each.partition: each.offset for each in found}


def check_log(client: StockClient, writer: Writer) -> None:
    """Check that every record is there once, in order, and at the offset at which it was acknowledged."""
    acknowledged = dict(writer.acknowledged)
    for partition in range(PARTITIONS):
        numbers = [int(value) for value in client.read("idempotent", partition)]
        assert numbers == list(range(partition, writer.sent, PARTITIONS))
        assert [acknowledged[number] for number in numbers] == list(range(len(numbers)))


def check_acknowledged(client: StockClient, writer: Writer) -> None:
    """Check that acknowledged records are at their offsets; without idempotence a retry may repeat records."""
    for partition in range(PARTITIONS):
        numbers = [int(value) for value in client.read("plain", partition)]
        for number, offset in writer.acknowledged:
            assert number % PARTITIONS != partition or numbers[offset] == number
        first_seen = list(dict.fromkeys(numbers))
        assert first_seen == sorted(first_seen)


def checked_bytes(broker: FaultyBroker) -> int:
    """Return the bytes that the latest start read of the logs."""
    found = re.search(r"(\d+) bytes were checked", broker.lines("bytes were checked")[-1])
    assert found is not None
    return int(found[1])


def test_recovery_reads_only_bytes_after_the_recovery_point(start_broker: StartBroker) -> None:
    broker = start_broker(log_flush_offset_checkpoint_interval_ms="200")
    client = broker.client
    client.create_topic_in("flights", segment_bytes=str(SEGMENT_BYTES))
    values = [b"%06d" % number + b"x" * 10_000 for number in range(600)]
    client.write("flights", values)
    directory = broker.partition_dir("flights")
    segments = sorted(directory.glob("*.log"))
    assert len(segments) > 5
    active = int(segments[-1].stem)
    wait_for(lambda: recovery_point(directory) >= active)
    broker.server.kill()
    broker.server.start()
    assert 0 < checked_bytes(broker) <= SEGMENT_BYTES
    assert client.read("flights") == values
    assert broker.server.stop() == 0
    broker.server.start()
    assert checked_bytes(broker) == 0
    assert client.ends("flights") == (0, len(values))


def recovery_point(directory: Path) -> int:
    """Return the recovery point of the partition in the checkpoint of its log dir."""
    path = directory.parent / "recovery-point-offset-checkpoint"
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    topic, _, partition = directory.name.rpartition("-")
    return next((int(line.split()[2]) for line in lines[2:] if line.split()[:2] == [topic, partition]), -1)
