"""Metrics of partitions for Kafka's dashboards: only the leader of a partition reports them."""

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for

T0 = '{topic="t",partition="0"}'


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


def told(cluster: BarnabasCluster, number: int) -> dict[str, float]:
    """Return every sample of a broker's metrics page, by its name with labels."""
    status, text = cluster.page(number, "/metrics")
    assert status == 200
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


def test_partition_metrics_are_reported_only_by_the_leader(cluster: BarnabasCluster) -> None:
    cluster.create_topic("t", 1, 3, assignment=[[1, 2, 0]], config={"min.insync.replicas": "2"})
    leads = f"kafka_topic_partition_leader{T0}"
    leader = wait_for(lambda: told(cluster, 1), lambda page: page.get(leads) == 1)
    follower = told(cluster, 2)
    assert leader[f"kafka_topic_partition_leader_is_preferred{T0}"] == 1
    assert leader[f"kafka_topic_partition_replicas{T0}"] == 3
    assert leader[f"kafka_topic_partition_in_sync_replica{T0}"] == 3
    assert leader[f"kafka_cluster_partition_underreplicated{T0}"] == 0
    assert leader["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert leads not in follower


def test_the_lag_of_a_group_is_reported_for_partitions_on_other_brokers(cluster: BarnabasCluster) -> None:
    cluster.create_topic("lagging", 3, assignment=[[0], [1], [2]])
    client = cluster.client()
    for number in range(3):
        client.write("lagging", [b"x"] * (10 + number), number)
    client.commit("readers", *(TopicPartition("lagging", number, 4) for number in range(3)))
    group = 'consumergroup="readers",topic="lagging"'
    wanted = {f'kafka_consumergroup_lag{{{group},partition="{number}"}}': 6 + number for number in range(3)}
    wanted[f"kafka_consumergroup_lag_sum{{{group}}}"] = 21
    lag = "kafka_consumergroup_lag"

    def told_by_all() -> dict[str, float]:
        pages = [told(cluster, number) for number in range(3)]
        return {name: value for page in pages for name, value in page.items() if name.startswith(lag)}

    wait_for(told_by_all, lambda lags: lags == wanted)
