"""The Services of a Cluster that no longer lead to a broker."""

from dataclasses import replace as with_fields

import pytest
from msgspec.structs import replace

from barnabas_operator.manifests.cluster_objects import leftover_services, services
from barnabas_operator.planning.brokers.pods import BrokerPod, BrokerSet, PodsState
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta

INSIDE = Listener(name="plain", port=9092)
OUTSIDE = Listener(name="outside", port=9094, type="loadbalancer")
META = ObjectMeta(name="flights", namespace="air", uid="u-1")
BEFORE = Cluster(metadata=META, spec=ClusterSpec(brokers=Brokers(replicas=3), listeners=(INSIDE, OUTSIDE)))
FOUND = services(BEFORE, 3)


def pods_of(count: int, *, old: int = 0, seen: bool = True) -> PodsState:
    """Return `count` brokers, the first `old` with the former template; Kubernetes has `seen` the new one or not."""
    pods = {
        number: BrokerPod(number, f"flights-broker-{number}", f"u-{number}", "old" if number < old else "new", True)
        for number in range(count)
    }
    return PodsState(BrokerSet(count, "new" if seen else "", {}), pods)


def declared(replicas: int, *listeners: Listener) -> Cluster:
    return replace(BEFORE, spec=replace(BEFORE.spec, brokers=Brokers(replicas=replicas), listeners=listeners))


ALL_OUTSIDE = {"flights-bootstrap-outside", *(f"flights-broker-{number}-outside" for number in range(3))}
CASES: dict[str, tuple[Cluster, PodsState, set[str]]] = {
    "nothing has changed": (BEFORE, pods_of(3), set()),
    "a listener is removed": (declared(3, INSIDE), pods_of(3), ALL_OUTSIDE),
    "a listener becomes internal": (declared(3, INSIDE, replace(OUTSIDE, type="internal")), pods_of(3), ALL_OUTSIDE),
    "a listener has another type": (declared(3, INSIDE, replace(OUTSIDE, type="nodeport")), pods_of(3), set()),
    "a broker still has the listener": (declared(3, INSIDE), pods_of(3, old=1), set()),
    "the template has not been seen": (declared(3, INSIDE), pods_of(3, seen=False), set()),
    "there is no StatefulSet yet": (declared(3, INSIDE), PodsState(None), set()),
    "brokers shall go": (declared(1, INSIDE, OUTSIDE), pods_of(3), set()),
    "one of them has gone": (declared(1, INSIDE, OUTSIDE), pods_of(2), {"flights-broker-2-outside"}),
    "and the others restart": (declared(1, INSIDE, OUTSIDE), pods_of(2, old=2), {"flights-broker-2-outside"}),
    "all have gone": (
        declared(1, INSIDE, OUTSIDE),
        pods_of(1),
        {"flights-broker-1-outside", "flights-broker-2-outside"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_services_are_left_over_only_if_no_broker_uses_them(name: str) -> None:
    cluster, pods, expected = CASES[name]
    assert {each["metadata"]["name"] for each in leftover_services(cluster, pods, FOUND)} == expected


def test_services_of_other_owners_are_never_left_over() -> None:
    of_another = services(replace(BEFORE, metadata=replace(META, name="ships", uid="u-0")), 3)
    by_hand = [{"metadata": {"name": "mine", "uid": "x", "labels": {"barnabas.dev/cluster": "flights"}}}]
    assert leftover_services(declared(3, INSIDE), pods_of(3), [*of_another, *by_hand]) == []


def test_a_rollout_ends_when_all_brokers_run_with_the_current_template() -> None:
    asked = pods_of(3)
    asked = with_fields(asked, pods={**asked.pods, 1: asked.pods[1]._replace(restart_asked=True)})
    states = (pods_of(3), pods_of(3, old=1), pods_of(3, seen=False), PodsState(None), asked)
    assert [pods.is_rolled_out for pods in states] == [True, False, False, False, False]
