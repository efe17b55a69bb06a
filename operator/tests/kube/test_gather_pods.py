"""A round requests from the API server only the objects that the Cluster needs."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_kube.client import ApiClient
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import Nodes, gather_pods
from barnabas_operator.planning.brokers.pods import BrokerSet, PodsState
from barnabas_operator.planning.object_names import ACCOUNT, BROKER_LABEL, GIVEN, LISTENER_LABEL
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener, Rack
from barnabas_operator.resources.kind import ObjectMeta
from harness.kube_memory import no_server

ZONE = "topology.kubernetes.io/zone"
INSIDE = Listener(name="plain")
NODE_PORT = Listener(name="outside", port=9094, type="nodeport")
BY_NAME = replace(NODE_PORT, preferred_node_port_address_type="Hostname")
NAMED = Listener(name="outside", port=9094, type="nodeport", advertised_host="kafka.example")
BALANCER = Listener(name="outside", port=9094, type="loadbalancer")
OBJECTS: dict[str, list[dict[str, Any]]] = {
    "pods": [
        {
            "metadata": {
                "name": f"flights-broker-{number}",
                "uid": f"u-{number}",
                "labels": {},
                "annotations": {ACCOUNT: account} if account else {},
            },
            "spec": {"nodeName": node} if node else {},
            "status": {"hostIP": host, "containerStatuses": [{"name": "broker", "state": state}]} if host else {},
        }
        for number, (node, host, state, account) in enumerate(
            [
                ("node-b", "10.0.0.2", {"waiting": {"reason": "CrashLoopBackOff"}}, "before"),
                ("node-a", "10.0.0.1", {"waiting": {"reason": "ContainerCreating"}}, "of-now"),
                ("", "", {}, ""),
            ]
        )
    ]
    + [
        {"metadata": {"name": name, "uid": name, "labels": {}}, "spec": {}}
        for name in ("flights-broker-1-copy", "flights-broker-1-copy-1", "copy-1", "flights-broker-01")
    ],
    "persistentvolumeclaims": [
        {
            "metadata": {"name": f"volume-0-flights-broker-{number}", "uid": f"c-{number}", "labels": {}, **meta},
            "spec": {"resources": {"requests": {"storage": "1Gi"}}},
        }
        for number, meta in enumerate(({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    ],
    "services": [
        {
            "metadata": {
                "name": f"flights-broker-{number}-outside",
                "labels": {BROKER_LABEL: str(number), LISTENER_LABEL: "outside"},
            },
            "spec": {"ports": [{"nodePort": 30000 + number}]},
            "status": {"loadBalancer": {"ingress": [{"hostname": "balancer.example"}, {"ip": "10.0.0.7"}]}},
        }
        for number in range(3)
    ],
    "nodes": [
        {
            "metadata": {"name": f"node-{zone}", "labels": {ZONE: zone}},
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": f"10.0.0.{number}"},
                    {"type": "InternalIP", "address": f"fd00::{number}"},
                    {"type": "Hostname", "address": f"node-{zone}"},
                ]
            },
        }
        for number, zone in enumerate("ab", start=1)
    ],
}


NODES = {"/api/v1/nodes/node-a", "/api/v1/nodes/node-b"}


class AskedApi(KubeApi):
    """An API server that answers from `OBJECTS` and records the requested kinds."""

    def __init__(self, connection: ApiClient) -> None:
        super().__init__(connection)
        self.asked: set[str] = set()
        self.owner = "flights"
        self.given: dict[str, str] = {}

    async def request(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        plural = path.split("/")[-2] if path.endswith("/flights-broker") else path.split("/")[-1]
        if path.startswith("/api/v1/nodes/"):
            self.asked.add(path)
            return next(each for each in OBJECTS["nodes"] if path.endswith(f"/{each['metadata']['name']}"))
        self.asked.add(plural)
        if plural == "statefulsets":
            owner = {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "name": self.owner}
            meta = {"generation": 1, "ownerReferences": [owner], "annotations": {GIVEN: json.dumps(self.given)}}
            template = {"metadata": {"annotations": {ACCOUNT: "before"}}}
            return {"metadata": meta, "spec": {"replicas": 1, "template": template}}
        if plural == "serviceaccounts":
            return {"metadata": {"uid": "of-now"}}
        return {"items": OBJECTS.get(plural, [])}


def gather(*listeners: Listener, rack: Rack | None = None) -> tuple[PodsState, set[str]]:
    """Return what was found, and the requested kinds besides those that every Cluster needs."""
    cluster = Cluster(
        metadata=ObjectMeta(name="flights"), spec=ClusterSpec(brokers=Brokers(rack=rack), listeners=listeners)
    )

    async def gathered() -> tuple[PodsState, set[str]]:
        async with no_server() as connection:
            api = AskedApi(connection)
            return await gather_pods(api, cluster, Nodes(api)), api.asked

    found, asked = asyncio.run(gathered())
    always = {"statefulsets", "serviceaccounts", "pods", "persistentvolumeclaims"}
    assert asked >= always
    return found, asked - always


@pytest.mark.parametrize(
    ("listeners", "rack", "asked"),
    [
        ((INSIDE,), None, set()),
        ((INSIDE,), Rack(), NODES),
        ((INSIDE, BALANCER), None, {"services"}),
        ((INSIDE, NAMED), None, {"services"}),
        ((INSIDE, NODE_PORT), None, {"services", *NODES}),
    ],
)
def test_nodes_and_services_are_requested_only_if_the_cluster_needs_them(
    listeners: tuple[Listener, ...], rack: Rack | None, asked: set[str]
) -> None:
    assert gather(*listeners, rack=rack)[1] == asked


def test_a_pod_whose_service_account_was_deleted_is_cut_off() -> None:
    """A pod of a version that did not annotate its service account is not cut off."""
    found = gather(INSIDE)[0]
    assert [found.pods[number].is_cut_off for number in range(3)] == [True, False, False]
    assert found.external.account_uid == "of-now"


def test_a_pod_is_in_the_rack_of_its_node() -> None:
    assert gather(INSIDE, rack=Rack())[0].pods[0].rack == "b"


def test_a_pod_counts_as_a_broker_by_its_name_and_not_by_its_labels() -> None:
    assert [pod.name for pod in gather(INSIDE)[0].pods.values()] == [f"flights-broker-{number}" for number in range(3)]


def test_a_starting_pod_is_not_reported_as_a_trouble() -> None:
    assert gather(INSIDE)[0].troubles() == "flights-broker-0: CrashLoopBackOff"


def test_a_broker_whose_container_does_not_run_is_down() -> None:
    assert [pod.is_down for pod in gather(INSIDE)[0].pods.values()] == [True, True, True]


def test_a_terminating_claim_is_reported_for_the_broker_that_uses_it() -> None:
    assert [view.ending for view in replace_set(gather(INSIDE)[0], 3).views()] == [
        "",
        "claim volume-0-flights-broker-1",
        "",
    ]


def replace_set(found: PodsState, replicas: int) -> PodsState:
    return dataclasses.replace(found, broker_set=BrokerSet(replicas, "", {}))


def test_a_node_port_listener_advertises_the_node_of_each_brokers_pod() -> None:
    found, _ = gather(INSIDE, NODE_PORT)
    assert [found.external.address_outside(NODE_PORT, number) for number in range(3)] == [
        ("10.0.0.2", 30000),
        ("10.0.0.1", 30001),
        ("", 30002),
    ]


def test_a_broker_advertises_its_nodes_address_of_the_preferred_type() -> None:
    found, _ = gather(INSIDE, BY_NAME)
    assert [found.external.address_outside(BY_NAME, number) for number in range(2)] == [
        ("node-b", 30000),
        ("node-a", 30001),
    ]


def test_an_advertised_host_takes_precedence_over_the_nodes_address() -> None:
    found, _ = gather(INSIDE, NAMED)
    assert [found.external.address_outside(NAMED, number) for number in range(3)] == [
        ("kafka.example", 30000 + number) for number in range(3)
    ]


def test_a_load_balancers_address_is_read_from_the_services_alone() -> None:
    found, _ = gather(INSIDE, BALANCER, rack=Rack())
    assert found.external.address_outside(BALANCER, 0) == ("balancer.example", 9094)
    assert found.external.node_hosts == {}


async def test_a_broker_keeps_its_advertised_balancer_address_while_the_balancer_has_it() -> None:
    cluster = Cluster(metadata=ObjectMeta(name="flights"), spec=ClusterSpec(listeners=(BALANCER,)))
    async with no_server() as connection:
        api = AskedApi(connection)
        api.given = {"flights-broker-1-outside": "10.0.0.7", "flights-broker-2-outside": "gone.example"}
        found = (await gather_pods(api, cluster, Nodes(api))).external.balancer_hosts
    assert [found["outside", number] for number in range(3)] == ["balancer.example", "10.0.0.7", "balancer.example"]


@pytest.mark.parametrize("owner", ["flights", "ships"])
async def test_a_stateful_set_of_another_owner_does_not_belong_to_the_cluster(owner: str) -> None:
    async with no_server() as connection:
        api = AskedApi(connection)
        api.owner = owner
        pods = await gather_pods(api, Cluster(metadata=ObjectMeta(name="flights")), Nodes(api))
    assert (pods.broker_set is not None) is (owner == "flights")
