"""F33, F34: applications go on while all brokers are restarted, one after another: no error, nothing lost or twice."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from operator import le
from pathlib import Path
from typing import Any

import pytest

from drivers.background import PolledMember
from drivers.builds import ToolMissing, java_driver
from drivers.interface import Client, Member, value_of
from drivers.kafka_python import KafkaPythonClient
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient, RemoteMember
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.kafka_jars import JarsMissing
from harness.require import missing
from harness.soak import took
from rolling_writers import JavaWriter, KafkaPythonWriter, LibrdkafkaWriter, SteadyWriter
from torture.history import History, Lane, check

PARTITIONS = 3
RATE = 200
RECORDS_BETWEEN = 200
MEMBERS = 2
GAP_SECONDS_MAX = 8.0
"""Of writers and readers. They have 0.1 to 0.5 s on an idle machine. A client that waits for a broker that is gone has
10 s and more."""
NAMES = ("librdkafka", "kafka-python", "java")
PROPERTIES = {"min.insync.replicas": "2", "offsets.topic.num.partitions": "6", "auto.create.topics.enable": "false"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, 3, PROPERTIES) as cluster:
        for name in NAMES:
            cluster.create_topic(name, PARTITIONS, 3)
        yield cluster


@pytest.fixture
def java(cluster: BarnabasCluster, tmp_path: Path) -> Iterator[RemoteClient]:
    try:
        command = java_driver(cluster.bootstrap)
    except (JarsMissing, ToolMissing) as reason:
        missing(str(reason))
        raise
    with closing(RemoteClient("java", command, tmp_path / "java.log")) as client:
        yield client


@pytest.fixture
def clients(cluster: BarnabasCluster, java: RemoteClient) -> dict[str, Client]:
    libraries = (LibrdkafkaClient(cluster.bootstrap), KafkaPythonClient(cluster.bootstrap), java)
    return {client.name: client for client in libraries}


def start_writers(cluster: BarnabasCluster, java: RemoteClient, history: History) -> dict[str, SteadyWriter]:
    how: dict[str, Any] = {"history": history, "partitions": PARTITIONS, "rate": RATE}
    return {
        "librdkafka": LibrdkafkaWriter("librdkafka", topic="librdkafka", bootstrap=cluster.bootstrap, **how),
        "kafka-python": KafkaPythonWriter("kafka-python", topic="kafka-python", bootstrap=cluster.bootstrap, **how),
        "java": JavaWriter(java, "java", topic="java", **how),
    }


def await_progress(writers: dict[str, SteadyWriter]) -> None:
    for writer in writers.values():
        written = writer.written()
        wait_for(writer.written, partial(le, written + RECORDS_BETWEEN), 60)


def restart_all(cluster: BarnabasCluster, writers: dict[str, SteadyWriter], members: list[Member]) -> None:
    """One after another, as soon as all replicas are in sync again."""
    for number in cluster.brokers:
        assert cluster.stop(number) == 0
        cluster.start(number)
        cluster.wait_until_full()
        await_progress(writers)
        for member in members:
            member.commit()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_application_notices_a_rolling_restart(
    cluster: BarnabasCluster, clients: dict[str, Client], java: RemoteClient
) -> None:
    history = History(idempotent_topics=frozenset(NAMES))
    groups = {name: [clients[name].join(name, f"member-{n}", [name]) for n in range(MEMBERS)] for name in NAMES}
    writers = start_writers(cluster, java, history)
    await_progress(writers)
    members = [member for group in groups.values() for member in group]
    wait_for(lambda: all(len(member.assignment()) in (1, 2) for member in members), seconds_max=60)
    restart_all(cluster, writers, members)
    for writer in writers.values():
        writer.finish()
    gaps_s = longest_gaps_s(writers, groups)
    for client, gap_s in gaps_s.items():
        took(f"{client}: the longest time without records", gap_s, GAP_SECONDS_MAX)
    read_back(cluster, history)
    for name, group in groups.items():
        wait_for(partial(has_seen_all, history, name, group), seconds_max=60)
    assert check(history) == []
    for member in members:
        member.leave()


def longest_gaps_s(writers: Mapping[str, SteadyWriter], groups: Mapping[str, Sequence[Member]]) -> dict[str, float]:
    """Between two acknowledgements of a writer, and between two polls with records of a reader; of all of them."""
    gaps_s = {f"writer {name}": round(writer.longest_gap_s, 2) for name, writer in writers.items()}
    for name, group in groups.items():
        told = [member.longest_gap_s for member in group if isinstance(member, PolledMember | RemoteMember)]
        assert len(told) == MEMBERS, f"readers of {name} that do not tell"
        gaps_s[f"readers {name}"] = round(max(told), 2)
    return gaps_s


def read_back(cluster: BarnabasCluster, history: History) -> None:
    client = cluster.client()
    for name in NAMES:
        for partition in range(PARTITIONS):
            history.logs[Lane(name, partition)] = client.read(name, partition)


def has_seen_all(history: History, topic: str, group: list[Member]) -> bool:
    """What the group was given goes into the history."""
    for record in (record for member in group for record in member.records()):
        history.saw(Lane(record.topic, record.partition), record.offset, value_of(record))
    return all(len(history.seen.get(lane, ())) >= len(log) for lane, log in history.logs.items() if lane.topic == topic)
