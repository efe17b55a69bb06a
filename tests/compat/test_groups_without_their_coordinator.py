"""F40, F48: SIGKILL for the broker that coordinates a group, twice: each client's group reads on and commits."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from barnabas_core.java_hash import coordinator_partition
from barnabas_core.topic_name import CONSUMER_OFFSETS
from drivers.builds import ToolMissing, java_driver
from drivers.interface import Client, Member, value_of
from drivers.kafka_python import KafkaPythonClient
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.kafka_jars import JarsMissing
from harness.require import missing
from rolling_writers import LibrdkafkaWriter
from torture.history import History, Lane, check

TOPIC, PARTITIONS = "flights", 4
OFFSETS_PARTITIONS = 6
MEMBERS = ("first", "second")
KILLS = 2
RATE = 200
RECORDS_BETWEEN = 400
SECONDS_MAX = 90.0
PROPERTIES = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, 3, PROPERTIES) as running:
        running.create_topic(TOPIC, PARTITIONS, 3)
        yield running


@pytest.fixture(params=("kafka-python", "java", "librdkafka"))
def client(request: pytest.FixtureRequest, cluster: BarnabasCluster, tmp_path: Path) -> Iterator[Client]:
    if request.param != "java":
        yield (KafkaPythonClient if request.param == "kafka-python" else LibrdkafkaClient)(cluster.bootstrap)
        return
    try:
        command = java_driver(cluster.bootstrap)
    except (JarsMissing, ToolMissing) as reason:
        missing(str(reason))
        raise
    with closing(RemoteClient("java", command, tmp_path / "java.log")) as made:
        yield made


def coordinator(cluster: BarnabasCluster, group: str) -> int:
    return cluster.leader(CONSUMER_OFFSETS, coordinator_partition(group, OFFSETS_PARTITIONS))


def is_shared_out(members: list[Member]) -> bool:
    """Whether the members hold every partition, none of them twice."""
    held = [place for member in members for place in member.assignment()]
    return sorted(held) == [(TOPIC, partition) for partition in range(PARTITIONS)]


def given(members: list[Member]) -> int:
    """How many different records the members were given by now."""
    return len({(record.partition, record.offset) for member in members for record in member.records()})


def commit(member: Member) -> int:
    """Returns once a commit is kept: how many were refused before, as those of an older generation rightly are."""
    refused: list[Exception] = []

    def outcome() -> Exception | None:
        try:
            member.commit()
        except Exception as error:
            member.assignment()  # Raises what ended the member.
            refused.append(error)
            return error
        return None

    wait_for(outcome, lambda error: error is None, SECONDS_MAX)
    return len(refused)


def committed_by(client: Client, members: list[Member]) -> dict[int, int]:
    """Where the group is once all have committed. A member that was late may have to read again what another had."""
    for member in members:
        commit(member)
    return client.committed(client.name, TOPIC)


def lose_the_coordinator(cluster: BarnabasCluster, name: str, members: list[Member], writer: LibrdkafkaWriter) -> None:
    """Kills it, returns when the whole group works with the next one and the killed broker is back."""
    lost = coordinator(cluster, name)
    held = [member.assignment() for member in members]
    began_s = time.monotonic()
    cluster.kill(lost)
    refused = sum(commit(member) for member in members)
    committed_s = time.monotonic() - began_s
    written = writer.written()
    wait_for(writer.written, lambda now: now >= written + RECORDS_BETWEEN, SECONDS_MAX)
    written = writer.written()
    wait_for(lambda: given(members), lambda count: count >= written, SECONDS_MAX)
    wait_for(lambda: is_shared_out(members), seconds_max=SECONDS_MAX)
    following = wait_for(lambda: coordinator(cluster, name), lambda number: number not in (lost, -1))
    print(
        f"{name}: after SIGKILL of coordinator {lost} all members' commits were kept by {following} after "
        f"{committed_s:.2f} s, {refused} refused before; rebalances there: "
        f"{cluster.metric(following, 'kafka_coordinator_group_completed_rebalances_total'):.0f}; "
        f"partitions {'stayed' if held == [member.assignment() for member in members] else 'changed hands'}"
    )
    cluster.start(lost)
    cluster.wait_until_full()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_group_reads_on_and_commits_through_the_deaths_of_its_coordinators(
    cluster: BarnabasCluster, client: Client
) -> None:
    history = History(idempotent_topics=frozenset([TOPIC]))
    members = [client.join(client.name, member, [TOPIC]) for member in MEMBERS]
    writer = LibrdkafkaWriter("writer", history, cluster.bootstrap, TOPIC, partitions=PARTITIONS, rate=RATE)
    wait_for(lambda: is_shared_out(members) and given(members) > 0, seconds_max=SECONDS_MAX)
    for _ in range(KILLS):
        lose_the_coordinator(cluster, client.name, members, writer)
    writer.finish()
    print(f"{client.name}: {writer.written()} written, longest time between two {writer.longest_gap_s:.2f} s")
    reader = cluster.client()
    history.logs = {Lane(TOPIC, number): reader.read(TOPIC, number) for number in range(PARTITIONS)}
    wait_for(lambda: given(members), lambda count: count == sum(map(len, history.logs.values())), SECONDS_MAX)
    for record in (record for member in members for record in member.records()):
        history.saw(Lane(record.topic, record.partition), record.offset, value_of(record))
    assert check(history) == []
    ends = {lane.partition: len(log) for lane, log in history.logs.items()}
    wait_for(lambda: committed_by(client, members), lambda offsets: offsets == ends, SECONDS_MAX)
    for member in members:
        member.leave()
