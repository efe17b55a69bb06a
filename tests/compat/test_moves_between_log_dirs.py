"""F28: replicas of three brokers move between their log dirs while records are written and brokers are killed.

Apache Kafka's kafka-reassign-partitions starts moves with log dirs in its plan, and kafka-python starts others.
"""

import json
import os
from collections.abc import Iterator
from functools import partial
from operator import eq
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.errors import NoError
from kafka.structs import TopicPartitionReplica

from drivers.builds import ToolMissing, java_driver
from drivers.kafka_tools import KafkaTools
from drivers.remote import RemoteClient
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.kafka_jars import JarsMissing
from harness.replica_comparison import differences
from harness.require import missing
from harness.soak import size
from torture.history import History, Lane, check
from torture.workload import Writer

SERVER = "--bootstrap-server localhost:9092"
TOPIC = "flights"
BALLAST_RECORDS, BALLAST_BYTES = size(1_000, 12_000), 1_000
"""Moves last only in the soak."""
SLOW_BYTES_PER_S, FAST_BYTES_PER_S = 60_000, 1_000_000_000
"""The slow move must last until two brokers have been killed, which takes minutes on a busy machine."""
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"
ROUNDS = 3
RATE = 200
PROPERTIES = {
    "min.insync.replicas": "2",
    "log.segment.bytes": "3000000",
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
    "log.dirs.placement": "fewest-partitions",
}


class Place(NamedTuple):
    """The place of a replica, as kafka-log-dirs reports it."""

    broker: int
    log_dir: str
    is_future: bool


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, 3, PROPERTIES, log_dirs=2) as running:
        yield running


@pytest.fixture
def tools(cluster: BarnabasCluster, tmp_path: Path) -> Iterator[KafkaTools]:
    try:
        command = java_driver(cluster.bootstrap)
    except (JarsMissing, ToolMissing) as reason:
        missing(str(reason))
        raise
    java = RemoteClient("java", command, tmp_path / "java.log")
    yield KafkaTools(java, cluster.bootstrap)
    java.close()


def places(tools: KafkaTools) -> set[Place]:
    """Return the places of the replicas of partition 0 on running brokers."""
    shown = tools.check(f"kafka-log-dirs.sh {SERVER} --describe --topic-list {TOPIC}")
    described = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    return {
        Place(broker["broker"], log_dir["logDir"], partition["isFuture"])
        for broker in described["brokers"]
        for log_dir in broker["logDirs"]
        for partition in log_dir["partitions"]
        if partition["partition"] == f"{TOPIC}-0"
    }


def others(cluster: BarnabasCluster, now: set[Place]) -> dict[int, str]:
    """Return for each broker the log dir that does not have its replica."""
    held = {place.broker: place.log_dir for place in now}
    return {
        number: next(str(path) for path in cluster.log_dirs(number) if str(path) != held.get(number))
        for number in cluster.brokers
    }


def arrived(wanted: dict[int, str]) -> set[Place]:
    return {Place(number, log_dir, False) for number, log_dir in wanted.items()}


def plan(folder: Path, replicas: list[int], log_dirs: dict[int, str]) -> Path:
    path = folder / "plan.json"
    partition = {
        "topic": TOPIC,
        "partition": 0,
        "replicas": replicas,
        "log_dirs": [log_dirs[each] for each in replicas],
    }
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return path


def fill(cluster: BarnabasCluster, history: History) -> None:
    """Write enough records that a slow move lasts."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(BALLAST_RECORDS):
        producer.produce(TOPIC, b"ballast/%d" % number, key=os.urandom(BALLAST_BYTES), partition=0)
    assert producer.flush(PATIENCE_S) == 0
    history.sent["ballast"] = BALLAST_RECORDS


def check_nothing_lost(cluster: BarnabasCluster, history: History, writer: Writer, now: set[Place]) -> None:
    """Stop the writer; check that each acknowledged record is there once, and that the replicas are equal."""
    writer.finish()
    cluster.wait_until_full(TOPIC)
    log = cluster.client().read(TOPIC)
    assert len([value for value in log if value.startswith(b"ballast/")]) == BALLAST_RECORDS
    history.logs = {Lane(TOPIC, 0): log}
    history.seen = {Lane(TOPIC, 0): dict(enumerate(log))}
    assert check(history) == []
    replicas = {str(place.broker): Path(place.log_dir) / f"{TOPIC}-0" for place in now}
    assert len(replicas) == len(now)
    wait_for(lambda: differences(replicas, len(log)), lambda found: not found)
    print(f"{writer.done} written meanwhile, longest time between two {writer.longest_gap_s:.2f} s")


def start_writer(cluster: BarnabasCluster, history: History) -> Writer:
    writer = Writer("writer", history, cluster.bootstrap, TOPIC, partitions=1, rate=RATE, enable_idempotence=True)
    writer.start()
    return writer


def futures(tools: KafkaTools) -> set[int]:
    """Return the brokers that have a future replica."""
    return {place.broker for place in places(tools) if place.is_future}


@pytest.mark.soak(only=True)
def test_replicas_move_by_plan_although_brokers_are_killed(
    cluster: BarnabasCluster, tools: KafkaTools, tmp_path: Path
) -> None:
    history = History(idempotent_topics=frozenset([TOPIC]))
    cluster.create_topic(TOPIC, assignment=[[0, 1, 2]])
    fill(cluster, history)
    writer = start_writer(cluster, history)
    wanted = others(cluster, places(tools))
    tool = f"kafka-reassign-partitions.sh {SERVER} --reassignment-json-file {plan(tmp_path, [0, 1, 2], wanted)}"
    started = tools.check(f"{tool} --execute --replica-alter-log-dirs-throttle {SLOW_BYTES_PER_S}")
    for number in cluster.brokers:
        assert f"{wanted[number]} for replica {TOPIC}-0 with broker {number}" in started
    for number in (cluster.leader(TOPIC), 1):
        wait_for(lambda: futures(tools), lambda moving: moving == {0, 1, 2})
        cluster.kill(number)
        cluster.start(number)
        cluster.wait_until_full(TOPIC)
    assert "is still in progress" in tools.check(f"{tool} --verify --preserve-throttles")
    for number in cluster.brokers:
        change = f"--entity-type brokers --entity-name {number} --alter --add-config {THROTTLE}={FAST_BYTES_PER_S}"
        tools.check(f"kafka-configs.sh {SERVER} {change}")
    verified = wait_for(lambda: tools.check(f"{tool} --verify"), lambda text: "still in progress" not in text)
    for number in cluster.brokers:
        assert f"Reassignment of replica {TOPIC}-0-{number} completed successfully." in verified
    assert places(tools) == arrived(wanted)
    check_nothing_lost(cluster, history, writer, places(tools))


@pytest.mark.soak(only=True)
def test_replicas_move_repeatedly_by_kafka_python_although_brokers_are_killed(
    cluster: BarnabasCluster, tools: KafkaTools
) -> None:
    history = History(idempotent_topics=frozenset([TOPIC]))
    cluster.create_topic(TOPIC, assignment=[[0, 1, 2]])
    fill(cluster, history)
    writer = start_writer(cluster, history)
    for number in range(ROUNDS):
        wanted = others(cluster, places(tools))
        moves = {TopicPartitionReplica(TOPIC, 0, broker): log_dir for broker, log_dir in wanted.items()}
        admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)  # An old client may not know the new broker.
        answers = admin.alter_replica_log_dirs(moves)
        cluster.kill(number)
        admin.close()
        assert set(answers.values()) == {NoError}
        cluster.start(number)
        wait_for(lambda: places(tools), partial(eq, arrived(wanted)), PATIENCE_S)
    check_nothing_lost(cluster, history, writer, places(tools))


@pytest.mark.slow
def test_a_replica_is_created_in_the_log_dir_that_the_plan_names(
    cluster: BarnabasCluster, tools: KafkaTools, tmp_path: Path
) -> None:
    history = History(idempotent_topics=frozenset([TOPIC]))
    cluster.create_topic(TOPIC, assignment=[[0, 1]])
    fill(cluster, history)
    writer = start_writer(cluster, history)
    here = {place.broker: place.log_dir for place in places(tools)}
    for replicas, log_dir in (([1, 2], 0), ([2, 1], 1)):
        wanted = {1: here[1], 2: str(cluster.log_dirs(2)[log_dir])}
        tool = f"kafka-reassign-partitions.sh {SERVER} --reassignment-json-file {plan(tmp_path, replicas, wanted)}"
        tools.check(f"{tool} --execute")
        wait_for(lambda: places(tools), partial(eq, arrived(wanted)), PATIENCE_S)
    check_nothing_lost(cluster, history, writer, places(tools))
