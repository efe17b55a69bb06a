"""Several brokers as processes on one metadata store, with the harness that the cluster tests use."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for

# A broker that was killed is missed, and may come back, once its lease has run out.
QUICK_LEASES = {"broker.heartbeat.interval.ms": "200", "broker.session.timeout.ms": "1500"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=3, properties=QUICK_LEASES, log_dirs=2) as running:
        yield running


def test_brokers_share_topics_and_each_serves_what_it_leads(cluster: BarnabasCluster) -> None:
    client = cluster.client()
    cluster.create_topic("flights", 3, assignment=[[0], [1], [2]])
    assert [cluster.leader("flights", partition) for partition in range(3)] == [0, 1, 2]
    for partition in range(3):
        client.write("flights", [b"%d" % partition], partition)
    assert [client.read("flights", partition) for partition in range(3)] == [[b"0"], [b"1"], [b"2"]]
    assert [folder.name for folder in cluster.folder_of(1).rglob("flights-*")] == ["flights-1"]


def test_a_killed_broker_comes_back_on_its_port_with_its_records(cluster: BarnabasCluster) -> None:
    client = cluster.client()
    cluster.create_topic("flights", 1, assignment=[[2]])
    client.write("flights", [b"kept"])
    port = cluster.brokers[2].port
    cluster.kill(2)
    wait_for(lambda: cluster.alive(as_told_by=0), lambda alive: alive == {0, 1})
    cluster.start(2)
    assert cluster.brokers[2].port == port
    assert cluster.alive(as_told_by=2) == {0, 1, 2}
    assert client.read("flights") == [b"kept"]


def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(cluster: BarnabasCluster) -> None:
    client = cluster.client()
    cluster.create_topic("flights", 1, 3, config={"min.insync.replicas": "2"})
    client.write("flights", [b"before"])
    leader = cluster.leader("flights")
    cluster.kill(leader)
    client.write("flights", [b"after"])
    (survivor, *_) = cluster.running
    wait_for(lambda: cluster.partition("flights", 0, as_told_by=survivor).leader, lambda led: led != leader)
    cluster.start(leader)
    cluster.wait_until_full("flights")
    assert client.read("flights") == [b"before", b"after"]


def test_a_paused_broker_says_nothing_until_it_goes_on(cluster: BarnabasCluster) -> None:
    cluster.pause(1)
    assert cluster.running == [0, 2]
    with pytest.raises(TimeoutError):
        cluster.describe(as_told_by=1)
    cluster.resume(1)
    cluster.wait_until_joined()


def test_a_broker_that_stops_as_asked_is_gone_at_once_and_may_come_back_at_once(cluster: BarnabasCluster) -> None:
    assert cluster.stop(0) == 0
    wait_for(lambda: cluster.alive(as_told_by=1), lambda alive: alive == {1, 2})
    cluster.start(0)
    assert cluster.running == [0, 1, 2]


def test_brokers_are_added_while_others_run(cluster: BarnabasCluster) -> None:
    cluster.add_broker(7)
    cluster.start(7)
    cluster.create_topic("flights", 1, assignment=[[7]])
    assert cluster.leader("flights") == 7
    assert cluster.page(7, "/readyz")[0] == 200
    assert cluster.metric(7, "kafka_server_replicamanager_partitioncount") == 1
    cluster.remove_broker(7)
    assert not cluster.folder_of(7).exists()
