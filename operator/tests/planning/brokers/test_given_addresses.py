"""Addresses that Kubernetes assigned to external Services are requested again, and changes are reported."""

import json
from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace

from barnabas_operator.manifests.cluster_objects import broker_objects, services, with_node_port
from barnabas_operator.planning.brokers.pods import (
    BrokerPod,
    BrokerSet,
    ExternalAccess,
    PodsState,
    given_addresses,
    stale_addresses,
    stale_brokers,
)
from barnabas_operator.planning.object_names import GIVEN
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ListenerTemplate, ObjectMeta, Template

NODE_PORT = Listener(name="outside", port=9094, type="nodeport")
BALANCED = Listener(name="lb", port=9095, type="loadbalancer")
CLUSTER = Cluster(
    metadata=ObjectMeta(name="main", namespace="air", uid="u"),
    spec=ClusterSpec(brokers=Brokers(replicas=2), listeners=(Listener(name="plain"), NODE_PORT, BALANCED)),
)
EXTERNAL = ExternalAccess(
    node_ports={("outside", 0): 30000, ("outside", 1): 30001, ("lb", 0): 31000, ("lb", 1): 31001},
    balancer_hosts={("lb", 0): "a.example", ("lb", 1): "b.example"},
    bootstrap_ports={"outside": 30100, "lb": 31100},
)
GIVEN_BEFORE = {
    "main-bootstrap-outside": "30100",
    "main-broker-0-outside": "30000",
    "main-broker-1-outside": "30001",
    "main-broker-0-lb": "a.example",
    "main-broker-1-lb": "b.example",
}


def pods(external: ExternalAccess, *numbers: int, stale: str = "") -> PodsState:
    found = {number: BrokerPod(number, f"main-broker-{number}", "u", "r", True, stale=stale) for number in numbers}
    return PodsState(BrokerSet(2, "r", {}, given=GIVEN_BEFORE), found, external)


def test_the_stateful_set_stores_the_advertised_addresses_in_an_annotation() -> None:
    (_, made) = broker_objects(CLUSTER, EXTERNAL, "image", 2)
    assert json.loads(made["metadata"]["annotations"][GIVEN]) == given_addresses(CLUSTER, EXTERNAL) == GIVEN_BEFORE
    assert GIVEN not in made["spec"]["template"]["metadata"]["annotations"], "the pods do not restart for it"


def test_a_recreated_service_requests_its_former_node_port() -> None:
    asked = {
        each["metadata"]["name"]: each["spec"]["ports"][0].get("nodePort")
        for each in (with_node_port(made, GIVEN_BEFORE) for made in services(CLUSTER, 2))
    }
    assert {name: port for name, port in asked.items() if port} == {
        "main-bootstrap-outside": 30100,
        "main-broker-0-outside": 30000,
        "main-broker-1-outside": 30001,
    }


def test_a_node_port_of_the_template_takes_precedence_over_the_former_one() -> None:
    ports = {"ports": [{"port": 9094, "nodePort": 32000}]}
    fixed = replace(NODE_PORT, template=ListenerTemplate(bootstrap_service=Template(spec=ports)))
    cluster = replace(CLUSTER, spec=replace(CLUSTER.spec, listeners=(fixed,)))
    (made,) = (each for each in services(cluster, 2) if each["metadata"]["name"] == "main-bootstrap-outside")
    assert with_node_port(made, GIVEN_BEFORE)["spec"]["ports"][0]["nodePort"] == 32000


OTHERS = {
    "nothing": (EXTERNAL, {}),
    "another port": (
        with_fields(EXTERNAL, node_ports={**EXTERNAL.node_ports, ("outside", 1): 30077}),
        {1: "still advertises the address 30001 for listener outside, but the address is now 30077"},
    ),
    "another balancer": (
        with_fields(EXTERNAL, balancer_hosts={**EXTERNAL.balancer_hosts, ("lb", 0): "c.example"}),
        {0: "still advertises the address a.example for listener lb, but the address is now c.example"},
    ),
    "another port behind a balancer": (with_fields(EXTERNAL, node_ports={**EXTERNAL.node_ports, ("lb", 0): 31077}), {}),
    "a Service that is not there yet": (with_fields(EXTERNAL, node_ports={("outside", 0): 30000}), {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_brokers_that_advertise_an_outdated_address_are_found(name: str) -> None:
    external, expected = OTHERS[name]
    assert stale_brokers(CLUSTER, pods(external, 0, 1)) == expected


def test_a_broker_without_a_pod_does_not_count_as_outdated() -> None:
    moved = with_fields(EXTERNAL, node_ports={**EXTERNAL.node_ports, ("outside", 1): 30077})
    assert stale_brokers(CLUSTER, pods(moved, 0)) == {}


def test_the_cluster_reports_outdated_addresses_until_the_broker_has_restarted() -> None:
    assert stale_addresses(pods(EXTERNAL, 0, 1)) is None
    told = stale_addresses(
        pods(
            EXTERNAL, 0, stale=("still advertises the address 30001 for listener outside, but the address is now 30077")
        )
    )
    message = (
        "main-broker-0 still advertises the address 30001 for listener outside, but the address is now 30077; "
        "brokers with an old address restart"
    )
    assert told == ("WaitingForAddresses", message)
