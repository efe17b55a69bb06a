"""The address of its pod's node that a broker advertises, and when the operator sets it."""

from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_operator.planning.brokers.pod_properties import place_settings, setting_changes
from barnabas_operator.planning.brokers.pods import BrokerPod, BrokerSet, ExternalAccess, PodsState, node_host
from barnabas_operator.planning.status.cluster_status import Findings, cluster_status
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta

NOW = "2026-01-01T00:00:00Z"
INSIDE = Listener(name="plain", port=9092)
OUTSIDE = Listener(name="outside", port=9094, type="nodeport")
OTHER = Listener(name="other", port=9095, type="nodeport", preferred_node_port_address_type="InternalIP")
CLUSTER = Cluster(
    metadata=ObjectMeta(name="flights"),
    spec=ClusterSpec(brokers=Brokers(replicas=3), listeners=(INSIDE, OUTSIDE, OTHER)),
)
ADDRESSES = {
    "Hostname": "box",
    "InternalDNS": "box.internal",
    "InternalIP": "10.0.0.1",
    "ExternalIP": "34.0.0.1",
    "ExternalDNS": "box.example",
}


def pod(number: int, host_ip: str = "", **more: Any) -> BrokerPod:
    return BrokerPod(number, f"flights-broker-{number}", f"u-{number}", "now", True, host_ip=host_ip, **more)


def state(*pods: BrokerPod, **hosts: str) -> PodsState:
    """`outside_0="a"`: listener outside of broker 0 is at host a."""
    node_hosts = {(name, int(number)): host for key, host in hosts.items() for name, _, number in [key.partition("_")]}
    ports = {(each.name, number): each.port + 20000 + number for each in (OUTSIDE, OTHER) for number in range(3)}
    return PodsState(
        BrokerSet(3, "now", {}), {each.broker_id: each for each in pods}, ExternalAccess(ports, {}, node_hosts)
    )


@pytest.mark.parametrize("gone", range(len(ADDRESSES)))
def test_external_addresses_come_first_and_internal_ips_before_internal_names(gone: int) -> None:
    order = ["box.example", "34.0.0.1", "10.0.0.1", "box.internal", "box"]
    left = {kind: address for kind, address in ADDRESSES.items() if address in order[gone:]}
    assert node_host(left, "10.0.0.9", None) == order[gone]


@pytest.mark.parametrize("kind", ADDRESSES)
def test_the_preferred_address_type_takes_precedence(kind: str) -> None:
    assert node_host(ADDRESSES, "10.0.0.9", kind) == ADDRESSES[kind]
    assert node_host({}, "10.0.0.9", kind) == "10.0.0.9"


def test_a_broker_gets_advertised_hosts_only_if_they_differ_from_its_pods_host_ip() -> None:
    pods = state(
        pod(0, "10.0.0.1"),
        pod(1, "10.0.0.2"),
        outside_0="34.0.0.1",
        other_0="10.0.0.1",
        outside_1="10.0.0.2",
        other_1="10.0.0.2",
    )
    places = place_settings(CLUSTER, pods)
    assert setting_changes(CLUSTER, {0: {}, 1: {}}, places) == {
        0: {"advertised.hosts": "OUTSIDE:34.0.0.1,OTHER:10.0.0.1"}
    }


def test_a_moved_pod_changes_only_the_advertised_hosts_of_its_broker() -> None:
    told = {number: {"advertised.hosts": f"OUTSIDE:34.0.0.{number},OTHER:10.0.0.{number}"} for number in range(3)}
    pods = state(
        pod(0, "10.0.0.0"),
        pod(1, "10.0.0.7"),
        pod(2, "10.0.0.8"),
        outside_0="34.0.0.0",
        other_0="10.0.0.0",
        outside_1="34.0.0.7",
        other_1="10.0.0.7",
        outside_2="10.0.0.8",
        other_2="10.0.0.8",
    )
    assert setting_changes(CLUSTER, told, place_settings(CLUSTER, pods)) == {
        1: {"advertised.hosts": "OUTSIDE:34.0.0.7,OTHER:10.0.0.7"},
        2: {"advertised.hosts": None},  # Its new node has one address, which the pod knows.
    }


def test_advertised_hosts_stay_while_a_pod_has_no_node_or_an_old_revision() -> None:
    told = {"advertised.hosts": "OUTSIDE:34.0.0.1,OTHER:10.0.0.1"}
    of_before = pod(1, "10.0.0.7")._replace(revision="before")
    pods = state(pod(0), of_before, outside_1="34.0.0.7", other_1="10.0.0.7")
    assert setting_changes(CLUSTER, {0: told, 1: told}, place_settings(CLUSTER, pods)) == {}


def bootstrap(cluster: Cluster, pods: PodsState) -> str:
    status = cluster_status(cluster, NOW, None, Findings(pods))
    return {each.name: each.bootstrap_servers for each in status.listeners}.get("outside", "")


def test_bootstrap_servers_list_each_broker_at_its_current_or_its_last_node() -> None:
    placed = [pod(number, f"10.0.0.{number}") for number in range(2)]
    before = state(*placed, outside_0="a", outside_1="b")
    assert bootstrap(CLUSTER, before) == "a:29094,b:29095"
    known = replace(CLUSTER, status=cluster_status(CLUSTER, NOW, None, Findings(before)))
    assert bootstrap(known, state(placed[0], outside_0="c")) == "c:29094,b:29095"
