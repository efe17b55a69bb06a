"""The probes of a broker: started means that it serves, ready means that its replicas are in sync."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for

# Each fetch response holds about one batch, so a low rate slows the follower down for long.
SETTINGS = {
    "broker.heartbeat.interval.ms": "200",
    "replica.fetch.max.bytes": "10000",
    "follower.replication.throttled.rate": "1000",
}
THROTTLED = "follower.replication.throttled.replicas"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=3, properties=SETTINGS) as running:
        yield running


def test_a_restarted_broker_serves_at_once_and_is_ready_when_in_sync(cluster: BarnabasCluster) -> None:
    client = cluster.client()
    cluster.create_topic("flights", 1, assignment=[[0, 2]], config={THROTTLED: "*"})
    cluster.kill(2)
    wait_for(lambda: cluster.partition("flights", 0, as_told_by=1).isr, lambda isr: isr == (0,))
    for _ in range(20):
        client.write("flights", [bytes(9_000)])
    assert cluster.page(0, "/readyz") == (200, "ok\n")  # Broker 0 is in sync; broker 2 is not.
    cluster.start(2)
    assert cluster.page(2, "/startupz") == (200, "ok\n")
    assert cluster.page(2, "/readyz") == (503, "not in sync: flights-0\n")
    unthrottle = ConfigEntry(THROTTLED, None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, "flights", incremental_configs=[unthrottle])
    (done,) = client.admin.incremental_alter_configs([resource]).values()
    done.result()
    wait_for(lambda: cluster.page(2, "/readyz"), lambda page: page == (200, "ok\n"))
    cluster.wait_until_full("flights")
