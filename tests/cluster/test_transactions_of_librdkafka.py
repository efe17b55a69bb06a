"""Transactions of librdkafka on one broker: all or nothing for who reads committed records, also after a restart."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=1) as cluster:
        cluster.create_topic("from", partitions=1)
        cluster.create_topic("to", partitions=2)
        yield cluster


@pytest.fixture
def new_producer(cluster: BarnabasCluster) -> Callable[[], Producer]:
    def make() -> Producer:
        settings = {"transactional.id": "copy", "transaction.timeout.ms": 900_000, "linger.ms": 0}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
        producer.init_transactions(PATIENCE_S)
        return producer

    return make


def consumer(cluster: BarnabasCluster, group: str | None = None, isolation: str = "read_committed") -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap,
        "group.id": group or str(uuid4()),
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": False,
    }
    return Consumer(settings)


def write(producer: Producer, text: str) -> None:
    """Write the text to both partitions in the open transaction."""
    for partition in (0, 1):
        producer.produce("to", text.encode(), partition=partition)
    assert producer.flush(PATIENCE_S) == 0


def texts(cluster: BarnabasCluster, count: int, isolation: str = "read_committed") -> list[tuple[int, str]]:
    """Return the first records of both partitions."""
    found: list[tuple[int, str]] = []
    reader = consumer(cluster, isolation=isolation)
    reader.assign([TopicPartition("to", partition, 0) for partition in (0, 1)])

    def enough() -> bool:
        message = reader.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.partition() or 0, (message.value() or b"").decode()))
        return len(found) >= count

    wait_for(enough)
    assert reader.poll(0.5) is None
    reader.close()
    return sorted(found)


def test_committed_records_are_read_and_aborted_ones_are_not(
    cluster: BarnabasCluster, new_producer: Callable[[], Producer]
) -> None:
    producer = new_producer()
    for text, ends in (("one", True), ("two", False), ("three", True)):
        producer.begin_transaction()
        write(producer, text)
        if ends:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    assert texts(cluster, 4) == [(0, "one"), (0, "three"), (1, "one"), (1, "three")]
    assert len(texts(cluster, 6, "read_uncommitted")) == 6


def test_an_open_transaction_is_not_read_and_a_second_producer_aborts_it(
    cluster: BarnabasCluster, new_producer: Callable[[], Producer]
) -> None:
    first = new_producer()
    first.begin_transaction()
    write(first, "zombie")
    second = new_producer()
    second.begin_transaction()
    write(second, "heir")
    second.commit_transaction(PATIENCE_S)
    assert texts(cluster, 2) == [(0, "heir"), (1, "heir")]
    with pytest.raises(KafkaException):
        first.commit_transaction(PATIENCE_S)


def test_offsets_move_with_their_transaction_over_a_restart(
    cluster: BarnabasCluster, new_producer: Callable[[], Producer]
) -> None:
    source = Producer({"bootstrap.servers": cluster.bootstrap})
    source.produce("from", b"record")
    assert source.flush(PATIENCE_S) == 0
    reader = consumer(cluster, "copiers")
    reader.subscribe(["from"])
    wait_for(lambda: reader.poll(0.2) is not None)
    producer = new_producer()
    read = [TopicPartition("from", 0, 1)]

    producer.begin_transaction()
    write(producer, "aborted")
    producer.send_offsets_to_transaction(read, reader.consumer_group_metadata(), PATIENCE_S)
    producer.abort_transaction(PATIENCE_S)
    assert reader.committed([TopicPartition("from", 0)], PATIENCE_S)[0].offset < 0

    producer.begin_transaction()
    write(producer, "copied")
    producer.send_offsets_to_transaction(read, reader.consumer_group_metadata(), PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    assert reader.committed([TopicPartition("from", 0)], PATIENCE_S)[0].offset == 1

    assert cluster.stop(0) == 0
    cluster.start(0)
    producer.begin_transaction()
    write(producer, "after")
    producer.commit_transaction(PATIENCE_S)
    assert texts(cluster, 4) == [(0, "after"), (0, "copied"), (1, "after"), (1, "copied")]
    assert reader.committed([TopicPartition("from", 0)], PATIENCE_S)[0].offset == 1
    reader.close()
