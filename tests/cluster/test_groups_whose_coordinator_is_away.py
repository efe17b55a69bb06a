"""A group of which nobody can tell whether it is there is not told to be gone, by looks nor by the lag exporter."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from barnabas_core.java_hash import coordinator_partition
from barnabas_core.topic_name import CONSUMER_OFFSETS
from barnabas_kafka.asking import Asking
from barnabas_kafka.connection import connected_client
from barnabas_lag.app.options import parse
from barnabas_lag.kafka.offsets_retention import OffsetsRetention
from barnabas_lag.kafka.reading import read_cluster
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kafka.group_looks import GroupLooks
from barnabas_operator.planning.groups.group_seen import NOT_FOUND
from harness.cluster import RunningCluster, barnabas_cluster
from harness.deadline import wait_for

OFFSETS_PARTITIONS = 5
NAMES = [f"readers-{number}" for number in range(20)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    settings = {
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "offsets.topic.replication.factor": "1",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    with barnabas_cluster(tmp_path, properties=settings) as running:
        running.create_topic("flights", 1, 3)
        yield running


def coordinator(cluster: RunningCluster, group_id: str) -> int:
    return cluster.leader(CONSUMER_OFFSETS, coordinator_partition(group_id, OFFSETS_PARTITIONS))


def commit(cluster: RunningCluster, group_id: str) -> None:
    consumer = cluster.client().consumer(group_id)
    consumer.commit(offsets=[TopicPartition("flights", 0, 0)], asynchronous=False)
    consumer.close()


@pytest.mark.slow
def test_a_group_is_unknown_while_nobody_leads_its_partition_of_the_offsets(cluster: RunningCluster) -> None:
    commit(cluster, NAMES[0])
    away = coordinator(cluster, NAMES[0])
    here = next(name for name in NAMES if coordinator(cluster, name) != away)
    missing = next(name for name in NAMES if name != here and coordinator(cluster, name) != away)
    commit(cluster, here)
    looks, asked = GroupLooks(60.0, SystemClock()), {NAMES[0], here, missing}
    client = connected_client(cluster.bootstrap, 10.0, "tests")
    try:
        found = looks.look(lambda: client, asked).groups
        assert {name: each.state for name, each in found.items()} == {
            NAMES[0]: "Empty",
            here: "Empty",
            missing: NOT_FOUND,
        }
        cluster.kill(away)
        wait_for(lambda: coordinator(cluster, NAMES[0]), lambda leader: leader == -1)
        looked = wait_for(lambda: looks.look(lambda: client, asked), lambda each: len(each.groups) == 2, pause_s=0.2)
        assert {name: each.state for name, each in looked.groups.items()} == {here: "Empty", missing: NOT_FOUND}
        assert f"nobody leads the partition of {CONSUMER_OFFSETS} of {NAMES[0]}" in looked.unheard
        filters = parse(["--bootstrap", cluster.bootstrap]).filters
        read = read_cluster(Asking(client), filters, OffsetsRetention(time.monotonic))
        assert read.groups.keys() == {here}
        assert not read.is_complete, "what is known of the group would be forgotten"
        cluster.start(away)
        back = wait_for(lambda: looks.look(lambda: client, asked), lambda each: len(each.groups) == 3, pause_s=0.2)
        assert back.groups[NAMES[0]].state == "Empty"
    finally:
        client.close()
