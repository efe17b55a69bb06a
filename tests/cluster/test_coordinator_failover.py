"""F40, F48: a group continues with its commits on another coordinator after its coordinator was killed or stopped."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from barnabas_core.topic_partition import CONSUMER_OFFSETS, coordinator_partition
from harness.cluster import RunningCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for

GROUP, OFFSETS_PARTITIONS = "readers", 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    settings = {
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
    }
    with barnabas_cluster(tmp_path, properties=settings) as running:
        yield running


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Return the next `count` values, or raise AssertionError after the deadline."""
    values: list[bytes] = []

    def come() -> int:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        return len(values)

    wait_for(come, lambda found: found >= count)
    return values


def commit(consumer: Consumer) -> None:
    """Commit the positions, and retry: librdkafka leaves that to the caller while there is no coordinator."""

    def is_kept() -> bool:
        try:
            return all(each.error is None for each in consumer.commit(asynchronous=False) or ())
        except KafkaException:
            return False

    wait_for(is_kept)


@pytest.mark.parametrize(
    "take_down", [RunningCluster.kill, pytest.param(RunningCluster.stop, marks=pytest.mark.soak(only=True))]
)
def test_a_group_keeps_its_commits_when_its_coordinator_is_killed_or_stopped(
    cluster: RunningCluster, take_down: Callable[[RunningCluster, int], object]
) -> None:
    cluster.create_topic("flights", 1, 3)
    client = cluster.client()
    client.write("flights", [b"%d" % number for number in range(10)])
    consumer = client.consumer(GROUP)
    consumer.subscribe(["flights"])
    assert read(consumer, 10) == [b"%d" % number for number in range(10)]
    commit(consumer)
    coordinator = cluster.leader(CONSUMER_OFFSETS, coordinator_partition(GROUP, OFFSETS_PARTITIONS))
    take_down(cluster, coordinator)
    client.write("flights", [b"after"])
    assert read(consumer, 1) == [b"after"]
    commit(consumer)
    consumer.close()
    again = client.consumer(GROUP)
    assert again.committed([TopicPartition("flights", 0)], timeout=PATIENCE_S)[0].offset == 11
    again.close()
