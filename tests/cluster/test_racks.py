"""Where a broker stands can be told to it while it runs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.protocol.admin import DescribeClusterRequest

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=2, properties={"broker.rack": "a"}) as running:
        yield running


def racks(cluster: BarnabasCluster, as_told_by: int) -> dict[int, str | None]:
    answer = cluster.ask(as_told_by, DescribeClusterRequest(), 0)
    return {broker.broker_id: broker.rack for broker in answer.brokers}


def test_a_rack_that_is_told_to_a_running_broker_is_told_to_all_and_outlives_it(cluster: BarnabasCluster) -> None:
    assert racks(cluster, as_told_by=0) == {0: "a", 1: "a"}
    entry = ConfigEntry("broker.rack", "b", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    client = cluster.client()
    (done,) = client.admin.incremental_alter_configs([resource]).values()
    done.result()
    wait_for(lambda: racks(cluster, as_told_by=0), lambda told: told == {0: "a", 1: "b"})
    cluster.restart(1)
    assert racks(cluster, as_told_by=0) == {0: "a", 1: "b"}
