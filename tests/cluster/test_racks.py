"""A running broker's rack and advertised hosts can be changed dynamically."""

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.protocol.admin import DescribeClusterRequest

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("cluster"), brokers=2, properties={"broker.rack": "a"}) as running:
        yield running


def racks(cluster: BarnabasCluster, as_told_by: int) -> dict[int, str | None]:
    answer = cluster.ask(as_told_by, DescribeClusterRequest(), 0)
    return {broker.broker_id: broker.rack for broker in answer.brokers}


def hosts(cluster: BarnabasCluster, as_told_by: int) -> dict[int, str]:
    answer = cluster.ask(as_told_by, DescribeClusterRequest(), 0)
    return {broker.broker_id: broker.host for broker in answer.brokers}


def tell(cluster: BarnabasCluster, name: str, value: str | None) -> None:
    """Set a dynamic config of broker 1, or delete it with None."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    client = cluster.client()
    (done,) = client.admin.incremental_alter_configs([resource]).values()
    done.result()


def test_advertised_hosts_set_on_a_running_broker_survive_a_restart(
    cluster: BarnabasCluster,
) -> None:
    before = hosts(cluster, as_told_by=0)
    tell(cluster, "advertised.hosts", "PLAINTEXT:localhost")
    assert before[1] != "localhost"
    wait_for(lambda: hosts(cluster, as_told_by=0), lambda told: told == {**before, 1: "localhost"})
    cluster.restart(1)
    assert hosts(cluster, as_told_by=0) == {**before, 1: "localhost"}
    tell(cluster, "advertised.hosts", None)
    wait_for(lambda: hosts(cluster, as_told_by=0), lambda told: told == before)


def test_a_rack_set_on_a_running_broker_survives_a_restart(cluster: BarnabasCluster) -> None:
    assert racks(cluster, as_told_by=0) == {0: "a", 1: "a"}
    tell(cluster, "broker.rack", "b")
    wait_for(lambda: racks(cluster, as_told_by=0), lambda told: told == {0: "a", 1: "b"})
    cluster.restart(1)
    assert racks(cluster, as_told_by=0) == {0: "a", 1: "b"}
