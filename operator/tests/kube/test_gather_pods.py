"""A round asks the API server only for what the Cluster needs of it."""

import asyncio
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiClient

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import gather_pods
from barnabas_operator.planning.object_names import BROKER_LABEL, LISTENER_LABEL
from barnabas_operator.planning.pods import PodsState
from barnabas_operator.resources.cluster import (
    Brokers,
    Cluster,
    ClusterSpec,
    ClusterStatus,
    Listener,
    ListenerStatus,
    Rack,
)
from barnabas_operator.resources.object_meta import ObjectMeta

ZONE = "topology.kubernetes.io/zone"
INSIDE = Listener(name="plain")
NODE_PORT = Listener(name="outside", port=9094, type="nodeport")
NAMED = Listener(name="outside", port=9094, type="nodeport", advertised_host="kafka.example")
BALANCER = Listener(name="outside", port=9094, type="loadbalancer")
OBJECTS: dict[str, list[dict[str, Any]]] = {
    "pods": [
        {
            "metadata": {"name": "flights-broker-0", "uid": "u-0", "labels": {}},
            "spec": {"nodeName": "node-b"},
        }
    ],
    "services": [
        {
            "metadata": {"labels": {BROKER_LABEL: "0", LISTENER_LABEL: "outside"}},
            "spec": {"ports": [{"nodePort": 30000}]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "balancer.example"}]}},
        }
    ],
    "nodes": [
        {
            "metadata": {"name": f"node-{zone}", "labels": {ZONE: zone}},
            "status": {"addresses": [{"type": "InternalIP", "address": f"10.0.0.{number}"}]},
        }
        for number, zone in enumerate("ab", start=1)
    ],
}


class AskedApi(KubeApi):
    """Answers from `OBJECTS`, and keeps what was asked for."""

    def __init__(self, connection: ApiClient) -> None:
        super().__init__(connection)
        self.asked: set[str] = set()

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        plural = path.split("/")[-2] if path.endswith("/flights-broker") else path.split("/")[-1]
        self.asked.add(plural)
        if plural == "statefulsets":
            return {"metadata": {"generation": 1}, "spec": {"replicas": 1}}
        return {"items": OBJECTS[plural]}


def gather(*listeners: Listener, rack: Rack | None = None, told: str = "") -> tuple[PodsState, set[str]]:
    """What was found, and what was asked for besides the pods and what makes them; `told` is in the status."""
    spec = ClusterSpec(brokers=Brokers(rack=rack), listeners=listeners)

    status = ClusterStatus(listeners=(ListenerStatus(name="outside", bootstrap_servers=told),))

    async def gathered() -> tuple[PodsState, set[str]]:
        async with ApiClient() as connection:
            api = AskedApi(connection)
            return await gather_pods(
                api, Cluster(metadata=ObjectMeta(name="flights"), spec=spec, status=status)
            ), api.asked

    found, asked = asyncio.run(gathered())
    assert asked >= {"statefulsets", "pods"}
    return found, asked - {"statefulsets", "pods"}


@pytest.mark.parametrize(
    ("listeners", "rack", "asked"),
    [
        ((INSIDE,), None, set()),
        ((INSIDE,), Rack(), {"nodes"}),
        ((INSIDE, BALANCER), None, {"services"}),
        ((INSIDE, NAMED), None, {"services"}),
        ((INSIDE, NODE_PORT), None, {"services", "nodes"}),
    ],
)
def test_nodes_and_services_are_listed_only_where_the_cluster_needs_them(
    listeners: tuple[Listener, ...], rack: Rack | None, asked: set[str]
) -> None:
    assert gather(*listeners, rack=rack)[1] == asked


def test_a_pod_is_in_the_rack_of_its_node() -> None:
    assert gather(INSIDE, rack=Rack())[0].pods[0].rack == "b"


def test_a_listener_at_a_port_of_the_nodes_is_reached_at_one_of_them() -> None:
    found, _ = gather(INSIDE, NODE_PORT)
    assert found.facts.address_outside(NODE_PORT, 0) == ("10.0.0.1", 30000)


@pytest.mark.parametrize(
    ("told", "host"),
    [
        ("10.0.0.2:30000,10.0.0.2:30001", "10.0.0.2"),
        ("10.0.0.9:30000", "10.0.0.1"),
    ],
    ids=["a node that is there", "a node that is gone"],
)
def test_the_node_that_clients_were_told_stays_the_one_as_long_as_it_is_there(told: str, host: str) -> None:
    assert gather(INSIDE, NODE_PORT, told=told)[0].facts.node_address == host


def test_a_balancer_is_told_by_the_services_alone() -> None:
    found, _ = gather(INSIDE, BALANCER, rack=Rack())
    assert found.facts.address_outside(BALANCER, 0) == ("balancer.example", 9094)
    assert found.facts.node_address is None
