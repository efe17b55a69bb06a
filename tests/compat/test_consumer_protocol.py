"""Consumer groups of KIP-848 with the clients that have them: Java's consumer, and librdkafka's; and Kafka's tools."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_core.topic_partition import CONSUMER_OFFSETS, coordinator_partition
from drivers.every_client import CLIENTS, WITH_CONSUMER_PROTOCOL
from drivers.interface import Client, Member, Message, value_of
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from drivers.remote import RemoteClient
from harness.cluster import RunningCluster, barnabas_cluster
from harness.deadline import wait_for

SERVER = "--bootstrap-server localhost:9092"
OPTIONS = {"group.protocol": "consumer"}
Join = Callable[[str], Member]
OFFSETS_PARTITIONS: Final = 5
SAFE: Final = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
}
ROUNDS: Final = 3


@pytest.fixture
def filled(librdkafka: LibrdkafkaClient, topic: str) -> str:
    """A topic of four partitions with ten records in each."""
    librdkafka.create_topic(topic, 4, {})
    librdkafka.produce(topic, [Message(b"%d" % n, partition=n % 4) for n in range(40)])
    return topic


@pytest.fixture(params=WITH_CONSUMER_PROTOCOL)
def join(request: pytest.FixtureRequest, clients: Callable[[str], Client], filled: str) -> Join:
    """A function that makes a member of the group, which has the name of the topic."""
    client: Any = clients(request.param)
    options = OPTIONS if request.param == "librdkafka" else {"config": OPTIONS}
    return lambda name: client.join(filled, f"{request.param}-{name}", [filled], **options)


def sizes(*members: Member) -> list[int]:
    return [len(member.assignment()) for member in members]


def test_members_join_and_leave_and_each_partition_is_read(
    join: Join, librdkafka: LibrdkafkaClient, filled: str
) -> None:
    first = join("first")
    wait_for(first.records, lambda records: len(records) == 40)
    first.commit()
    second = join("second")
    wait_for(lambda: sizes(first, second), lambda found: found == [2, 2])
    assert first.assignment().isdisjoint(second.assignment())
    librdkafka.produce(filled, [Message(b"more", partition=n) for n in range(4)])
    wait_for(lambda: len(first.records()) + len(second.records()), lambda count: count == 44)
    for member in (first, second):
        member.commit()
    first.leave()
    wait_for(lambda: sizes(second), lambda found: found == [4])
    second.leave()
    assert librdkafka.committed(filled, filled) == dict.fromkeys(range(4), 11)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RunningCluster]:
    """Three brokers that a proof kills and rolls."""
    with barnabas_cluster(tmp_path, 3, SAFE) as running:
        yield running


def kill(cluster: RunningCluster, number: int) -> None:
    cluster.kill(number)
    cluster.start(number)
    cluster.wait_until_full()


def faults(cluster: RunningCluster, group: str) -> Iterator[None]:
    """Kill the group's coordinator and a leader of its topic, and roll all brokers, in turn."""
    while True:
        kill(cluster, cluster.leader(CONSUMER_OFFSETS, coordinator_partition(group, OFFSETS_PARTITIONS)))
        yield
        kill(cluster, cluster.leader(group))
        yield
        for number in cluster.brokers:
            cluster.restart(number)
            cluster.wait_until_full()
        yield


@pytest.mark.soak(only=True)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", WITH_CONSUMER_PROTOCOL)
def test_members_read_every_record_through_failovers_and_rolls(
    name: str, cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.create_topic("read", 4, 3)
    writer, written = LibrdkafkaClient(cluster.bootstrap), 0
    with closing(CLIENTS[name](cluster.bootstrap, tmp_path / "client.log")) as client:
        join: Any = client.join
        options = OPTIONS if name == "librdkafka" else {"config": OPTIONS}
        members: dict[str, Member] = {each: join("read", each, ["read"], **options) for each in ("a", "b")}
        wait_for(lambda: _seen(client, members)[0], lambda counts: counts == [2, 2])
        fault = faults(cluster, "read")
        for _ in range(3 * ROUNDS):
            writer.produce("read", [Message(b"%d" % (written + n), partition=n % 4) for n in range(40)])
            written += 40
            next(fault)
            wait_for(lambda: _seen(client, members), lambda seen: seen == ([2, 2], written))  # noqa: B023
        for member in members.values():
            member.commit()
        for member in members.values():
            member.leave()
        assert writer.committed("read", "read") == dict.fromkeys(range(4), written // 4)


def _seen(client: Client, members: dict[str, Member]) -> tuple[list[int], int]:
    """Return the sizes of the shares, and how many records were read; franz-go reports errors although it goes on."""
    if not isinstance(client, RemoteClient):
        values = {value_of(record) for member in members.values() for record in member.records()}
        return sizes(*members.values()), len(values)
    states = [client.ask("state", member=name) for name in members]
    return [len(each["assignment"]) for each in states], len({r["value"] for each in states for r in each["records"]})


def test_tools_show_and_delete_a_group(tools: KafkaTools, librdkafka: LibrdkafkaClient, filled: str) -> None:
    group = f"kafka-consumer-groups.sh {SERVER} --group {filled}"
    member = librdkafka.join(filled, "the-member", [filled], **OPTIONS)
    wait_for(member.records, lambda records: len(records) == 40)
    member.commit()
    listed = tools.check(f"kafka-consumer-groups.sh {SERVER} --list --type consumer")
    assert filled in listed
    for shown in ("", "--consumer", "--group-type consumer", "--protocol consumer"):
        groups = tools.check(f"kafka-groups.sh {SERVER} --list {shown}").splitlines()
        assert [filled, "Consumer", "consumer"] in [line.split() for line in groups]
    for others in ("--share", "--streams", "--group-type classic", "--protocol connect"):
        assert filled not in tools.check(f"kafka-groups.sh {SERVER} --list {others}")
    state = tools.check(f"{group} --describe --state --verbose").split()
    assert {"Stable", "uniform", "2"} <= set(state)
    members = tools.check(f"{group} --describe --members --verbose")
    assert "the-member" in members
    assert "0" in tools.check(f"{group} --describe --offsets")
    assert "The group is not empty" in tools.run(f"{group} --delete").text
    assert "actively subscribed" in tools.run(f"{group} --delete-offsets --topic {filled}").text
    member.leave()
    reset = f"{group} --reset-offsets --topic {filled} --to-earliest --execute"
    tools.check(reset)
    assert librdkafka.committed(filled, filled) == dict.fromkeys(range(4), 0)
    tools.check(f"{group} --delete")
    assert filled not in tools.check(f"kafka-consumer-groups.sh {SERVER} --list").splitlines()
