"""F40, F48: the coordinator's broker dies or goes: the group goes on at the next one, with what it had committed."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from barnabas_core.java_hash import coordinator_partition
from barnabas_core.topic_name import CONSUMER_OFFSETS
from harness.cluster import RunningCluster, barnabas_cluster

GROUP, OFFSETS_PARTITIONS = "readers", 5
SECONDS_MAX = 40.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    settings = {
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "group.initial.rebalance.delay.ms": "0",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    with barnabas_cluster(tmp_path, properties=settings) as running:
        yield running


def read(consumer: Consumer, count: int) -> list[bytes]:
    """The next `count` values. AssertionError after the deadline."""
    values: list[bytes] = []
    end_s = time.monotonic() + SECONDS_MAX
    while len(values) < count:
        assert time.monotonic() < end_s, f"{len(values)} of {count} records came"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    return values


@pytest.mark.parametrize("take_down", [RunningCluster.kill, RunningCluster.stop])
def test_a_group_goes_on_with_its_commits_when_its_coordinator_is_gone(
    cluster: RunningCluster, take_down: Callable[[RunningCluster, int], object]
) -> None:
    cluster.create_topic("flights", 1, 3)
    client = cluster.client()
    client.write("flights", [b"%d" % number for number in range(10)])
    consumer = client.consumer(GROUP, **{"session.timeout.ms": 6000, "auto.offset.reset": "earliest"})
    consumer.subscribe(["flights"])
    assert read(consumer, 10) == [b"%d" % number for number in range(10)]
    consumer.commit(asynchronous=False)
    coordinator = cluster.leader(CONSUMER_OFFSETS, coordinator_partition(GROUP, OFFSETS_PARTITIONS))
    take_down(cluster, coordinator)
    client.write("flights", [b"after"])
    assert read(consumer, 1) == [b"after"]
    consumer.commit(asynchronous=False)
    consumer.close()
    again = client.consumer(GROUP)
    assert again.committed([TopicPartition("flights", 0)], timeout=SECONDS_MAX)[0].offset == 11
    again.close()
