"""Brokers in three zones of a Kubernetes with several nodes: each has its zone as rack and advertises its node's
address, partitions are spread over the racks, and no acknowledged record is lost when a rack restarts at once or a
node is drained.
"""

import json
from collections import Counter
from collections.abc import Iterator

import pytest
from kafka.protocol.admin import DescribeClusterRequest

from barnabas_operator.planning.brokers.pods import node_host
from e2e.pods.castle import POLL_S, Castle
from e2e.pods.figures import Figures
from e2e.pods.pod_watch import PodWatch
from e2e.pods.providers import Cluster
from e2e.pods.under_traffic import MIN_IN_SYNC, PARTITIONS, under_traffic
from harness.ask import ask
from harness.deadline import wait_for
from harness.stock_client import StockClient

NAME = "racks"
ZONES = 3
# Two racks have two brokers, so in one of them neither broker is the controller, which always restarts alone.
BROKERS = 5
TOPICS = ("spread", "restarts", "drained")
SECONDS_MAX = 300.0
PLAIN = {"name": "plain", "port": 9092}
OUTSIDE = {"name": "outside", "port": 9094, "type": "nodeport"}
pytestmark = pytest.mark.soak(only=True)
CLUSTER = {
    "apiVersion": "barnabas.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": NAME},
    "spec": {
        "brokers": {"replicas": BROKERS, "rack": {}, "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}}},
        "storage": {"volumes": [{"id": 0, "size": "1Gi"}]},
        "insecure": True,
        "listeners": [PLAIN, OUTSIDE],
        "config": {"default.replication.factor": 3, "min.insync.replicas": MIN_IN_SYNC},
        "rolling": {"maxUnavailablePerRack": 2},
    },
}


@pytest.fixture(scope="module")
def racks(installed: Castle, cluster: Cluster) -> Iterator[Castle]:
    """A Cluster whose Topic was created together with it."""
    cluster.need_zones(ZONES)
    castle = Castle(cluster, NAME, BROKERS)
    castle.kubectl("apply", "-f-", stdin=json.dumps(CLUSTER))
    castle.create_topic("spread", PARTITIONS)
    castle.await_ready()
    yield castle
    castle.kubectl("delete", "--ignore-not-found", "topic", *TOPICS)
    castle.kubectl("delete", "cluster", NAME)
    castle.close()


def _zones(castle: Castle, cluster: Cluster) -> dict[str, str]:
    """Return the zone of the node of each broker's pod."""
    zone_of = {node: zone for zone, nodes in cluster.zones().items() for node in nodes}
    return {pod["metadata"]["name"]: zone_of[pod["spec"]["nodeName"]] for pod in castle.pod_items()}


def _told(bootstrap: str) -> dict[str, tuple[str, str]]:
    """Return the rack and host of each broker that the first address reports to clients."""
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    answer = ask(int(port), DescribeClusterRequest(), 0, host=host)
    return {f"{NAME}-broker-{each.broker_id}": (each.rack, each.host) for each in answer.brokers}


def _racks(castle: Castle) -> dict[str, str]:
    return {broker: rack for broker, (rack, _) in _told(castle.bootstrap).items()}


def _hosts(bootstrap: str) -> dict[str, str]:
    return {broker: host for broker, (_, host) in _told(bootstrap).items()}


def _addresses(castle: Castle, preferred: str | None = None) -> dict[str, str]:
    """Return the address of each broker's node that clients should get."""
    nodes = json.loads(castle.cluster_kubectl("get", "nodes", "-o=json"))["items"]
    by_type = {
        node["metadata"]["name"]: {each["type"]: each["address"] for each in node["status"]["addresses"]}
        for node in nodes
    }
    return {
        pod["metadata"]["name"]: node_host(by_type[pod["spec"]["nodeName"]], pod["status"]["hostIP"], preferred)
        for pod in castle.pod_items()
    }


def test_brokers_have_their_nodes_zones_as_racks_and_partitions_spread_over_them(
    racks: Castle, cluster: Cluster
) -> None:
    zones = _zones(racks, cluster)
    assert sorted(Counter(zones.values()).values()) == [1, 2, 2]
    wait_for(lambda: _racks(racks), lambda told: told == zones)
    topic = StockClient(racks.bootstrap).admin.list_topics("spread", timeout=30).topics["spread"]
    for partition in topic.partitions.values():
        assert len({zones[f"{NAME}-broker-{number}"] for number in partition.replicas}) == ZONES, partition.replicas


def test_clients_outside_get_the_address_of_each_brokers_own_node(racks: Castle) -> None:
    addresses = _addresses(racks)
    assert len(set(addresses.values())) == ZONES
    assert _hosts(racks.bootstrap) == addresses
    assert [each.rpartition(":")[0] for each in racks.bootstrap.split(",")] == [
        addresses[f"{NAME}-broker-{number}"] for number in range(BROKERS)
    ]


def test_running_brokers_follow_a_change_of_the_preferred_node_address_type(racks: Castle) -> None:
    before, bootstrap, names = racks.pods(), racks.bootstrap, _addresses(racks, "Hostname")
    racks.patch({"listeners": [PLAIN, {**OUTSIDE, "preferredNodePortAddressType": "Hostname"}]})
    wait_for(lambda: _hosts(bootstrap), lambda told: told == names, seconds_max=SECONDS_MAX)
    racks.patch({"listeners": [PLAIN, OUTSIDE]})
    wait_for(lambda: _hosts(bootstrap), lambda told: told == _addresses(racks), seconds_max=SECONDS_MAX)
    racks.await_ready()
    assert racks.pods() == before


def test_brokers_of_one_rack_restart_together_and_lose_no_acknowledged_record(
    racks: Castle, cluster: Cluster, figures: Figures
) -> None:
    zones = _zones(racks, cluster)
    with under_traffic(racks, figures, "five brokers in three racks restart", "restarts"):
        watch = PodWatch(racks)
        racks.patch({"config": {"group.initial.rebalance.delay.ms": 1}})
        wait_for(watch.look, seconds_max=SECONDS_MAX, pause_s=POLL_S)
    assert max(map(len, watch.down)) == 2
    assert all(len({zones[pod] for pod in together}) == 1 for together in watch.down), watch.down


def test_brokers_of_a_drained_node_move_to_another_node_of_their_zone(
    racks: Castle, cluster: Cluster, figures: Figures
) -> None:
    if cluster.add_node is None:
        pytest.skip("the provider cannot add nodes, so none is drained")
    before = _zones(racks, cluster)
    # Take a node with two brokers on which the other tests' Cluster has none.
    zone, node = max((zone, nodes[0]) for zone, nodes in cluster.zones().items() if _count(before, zone) == 2)
    spare = cluster.add_node(zone)
    with under_traffic(racks, figures, "a node with two of five brokers is drained", "drained"):
        cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data")
        racks.await_ready()
        cluster.kubectl("uncordon", node)
    assert _zones(racks, cluster) == before == _racks(racks)
    assert _hosts(racks.bootstrap) == _addresses(racks)
    nodes = Counter(pod["spec"]["nodeName"] for pod in racks.pod_items())
    assert (nodes[node], nodes[spare]) == (0, 2)


def _count(zones: dict[str, str], zone: str) -> int:
    return list(zones.values()).count(zone)
