"""Elections after brokers die, hang, stop or return, and on request: real processes and raw requests."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka.protocol.admin import (
    DescribeClusterRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

from harness.ask import ask
from harness.cluster import BarnabasCluster, PartitionView, barnabas_cluster, mend
from harness.deadline import wait_for
from harness.replica_comparison import differences
from harness.soak import took

SESSION_S = 6.0
"""A broker that is delayed for seconds on a busy machine must not count as hanging."""
LEASES = {"broker.heartbeat.interval.ms": "250", "broker.session.timeout.ms": str(int(SESSION_S * 1000))}
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("cluster"), brokers=3, properties=LEASES) as running:
        yield running


@pytest.fixture
def cluster(running: BarnabasCluster) -> Iterator[BarnabasCluster]:
    """Three brokers without topics, whatever the tests before have done to them."""
    yield running
    mend(running)


def when(cluster: BarnabasCluster, told_by: int, condition: Any, topic: str = "t", number: int = 0) -> PartitionView:
    """Wait until the condition holds for the partition as one broker reports it; return that view."""
    found: PartitionView = wait_for(lambda: cluster.partition(topic, number, as_told_by=told_by), condition)
    return found


def to_broker(cluster: BarnabasCluster, number: int, request: Any, version: int) -> Any:
    return ask(cluster.brokers[number].port, request, version)


def reassignments(cluster: BarnabasCluster) -> list[tuple[str, int]]:
    answer = to_broker(cluster, cluster.running[0], ListPartitionReassignmentsRequest(topics=None), 0)
    return [(topic.name, each.partition_index) for topic in answer.topics for each in topic.partitions]


def elect(cluster: BarnabasCluster, election: int, *partitions: tuple[str, int]) -> list[int]:
    """Request an election, and return the error codes."""
    wanted = ElectLeadersRequest.TopicPartitions
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=[wanted(topic=topic, partitions=[number]) for topic, number in partitions],
        timeout_ms=30_000,
    )
    answer = to_broker(cluster, cluster.running[0], request, 2)
    return [each.error_code for topic in answer.replica_election_results for each in topic.partition_result]


def elections(cluster: BarnabasCluster, *numbers: int) -> float:
    """Return how many leaders these brokers have elected as controllers."""
    name = "kafka_controller_controllerstats_leaderelections_total"
    return sum(cluster.metric(number, name) or 0 for number in numbers)


def test_a_killed_leader_is_replaced_long_before_its_session_ends(cluster: BarnabasCluster) -> None:
    cluster.create_topic("t", assignment=[[0, 1, 2]])
    client = cluster.client()
    client.write("t", [b"kept"])
    before = elections(cluster, 1, 2)
    began_s = time.monotonic()
    cluster.kill(0)
    view = when(cluster, 1, lambda view: view.leader not in (0, -1))
    took("another replica leads", time.monotonic() - began_s, SESSION_S / 2)
    assert (view.leader, view.isr, view.leader_epoch) == (1, (1, 2), 1)
    wait_for(lambda: elections(cluster, 1, 2), lambda count: count == before + 1)
    assert client.read("t") == [b"kept"]
    cluster.start(0)
    cluster.wait_until_full("t")
    assert cluster.partition("t", 0).leader == 1


def test_a_paused_leader_is_replaced_when_its_session_ends_and_then_follows(
    cluster: BarnabasCluster,
) -> None:
    cluster.create_topic("t", assignment=[[2, 1, 0]])
    client = cluster.client()
    client.write("t", [b"before"])
    cluster.pause(2)
    assert when(cluster, 1, lambda view: view.leader not in (2, -1)).leader == 1
    client.write("t", [b"meanwhile"])
    cluster.resume(2)
    cluster.wait_until_joined()
    cluster.wait_until_full("t")
    assert cluster.partition("t", 0, as_told_by=2).leader == 1
    assert client.read("t") == [b"before", b"meanwhile"]


def test_a_paused_controller_is_replaced_as_controller_and_leader(cluster: BarnabasCluster) -> None:
    controller = to_broker(cluster, 0, DescribeClusterRequest(), 0).controller_id
    others = [number for number in range(3) if number != controller]
    cluster.create_topic("t", assignment=[[controller, *others]])
    cluster.pause(controller)
    assert when(cluster, others[1], lambda view: view.leader in others).leader == others[0]
    told = wait_for(
        lambda: to_broker(cluster, others[0], DescribeClusterRequest(), 0),
        lambda answer: answer.controller_id in others,
    )
    assert {broker.broker_id for broker in told.brokers} == set(others)
    cluster.resume(controller)
    cluster.wait_until_joined()
    cluster.wait_until_full("t")


def test_a_broker_that_shuts_down_hands_over_its_partitions(cluster: BarnabasCluster) -> None:
    cluster.create_topic("t", 2, assignment=[[0, 1, 2], [1, 0, 2]])
    cluster.create_topic("alone", assignment=[[0]])
    assert cluster.stop(0) == 0
    for number in range(2):
        when(cluster, 1, lambda view: (view.leader, view.isr) == (1, (1, 2)), number=number)
    when(cluster, 1, lambda view: view.leader == -1, topic="alone")
    cluster.start(0)
    cluster.wait_until_full("t", "alone")
    assert cluster.leader("alone") == 0


def test_a_reassignment_to_a_dead_broker_can_be_cancelled_or_completes_after_its_restart(
    cluster: BarnabasCluster,
) -> None:
    cluster.create_topic("t", assignment=[[0]])
    cluster.create_topic("u", assignment=[[0]])
    cluster.kill(2)
    cluster.wait_until_joined()
    assert [cluster.reassign(topic, [2]) for topic in ("t", "u")] == [0, 0]
    wait_for(lambda: reassignments(cluster), lambda going: going == [("t", 0), ("u", 0)])
    assert cluster.reassign("u", None) == 0
    wait_for(lambda: reassignments(cluster), lambda going: going == [("t", 0)])
    cluster.start(2)
    wait_for(lambda: reassignments(cluster), lambda going: not going)
    assert [cluster.partition(topic, 0).replicas for topic in ("t", "u")] == [(2,), (0,)]


def test_an_unclean_leader_is_elected_only_on_request(cluster: BarnabasCluster) -> None:
    cluster.create_topic("t", assignment=[[0, 1]])
    client = cluster.client()
    cluster.kill(1)
    when(cluster, 0, lambda view: view.isr == (0,))
    client.write("t", [b"only on broker 0"])
    cluster.kill(0)
    cluster.start(1)
    assert when(cluster, 1, lambda view: view.leader == -1).isr == ()
    assert elect(cluster, UNCLEAN, ("t", 0)) == [0]
    assert when(cluster, 1, lambda view: view.leader == 1).isr == (1,)
    cluster.start(0)
    cluster.wait_until_full("t")
    assert client.read("t") == []


def test_a_replica_whose_log_dir_lost_its_last_records_fetches_them_before_it_leads(cluster: BarnabasCluster) -> None:
    cluster.create_topic("t", assignment=[[0, 1, 2]])
    client = cluster.client()
    values = [b"value %d" % number for number in range(50)]
    client.write("t", values)
    log_dir = cluster.log_dirs(0)[0]
    away = log_dir.with_name("away")
    log_dir.rename(away)
    assert when(cluster, 1, lambda view: view.leader not in (0, -1)).isr == (1, 2)
    client.write("t", [b"meanwhile"])
    log = next(away.glob("t-0/*.log"))
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    away.rename(log_dir)
    cluster.wait_until_full("t")
    assert elect(cluster, PREFERRED, ("t", 0)) == [0]
    when(cluster, 1, lambda view: view.leader == 0)
    assert client.read("t") == [*values, b"meanwhile"]
    replicas = {str(number): cluster.log_dirs(number)[0] / "t-0" for number in range(3)}
    assert differences(replicas, len(values) + 1) == []
