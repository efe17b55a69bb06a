"""Which pods are of a StatefulSet that is gone, so that the one made anew cannot adopt them."""

from dataclasses import replace
from typing import Any

import pytest

from barnabas_operator.planning.brokers.pods import BrokerPod, BrokerSet, PodsState
from barnabas_operator.planning.brokers.stranded_pods import owners_left, stranded_pods
from barnabas_operator.planning.status.adoption_events import adoption_event
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import ObjectMeta

CLUSTER = Cluster(metadata=ObjectMeta(name="one", namespace="air", uid="u"))
MADE, TOO_SOON, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:29Z", "2026-01-01T00:00:30Z"
THERE = BrokerSet(1, "", {}, uid="new", made_at=MADE)


def owner(**other: object) -> dict[str, Any]:
    """The StatefulSet that was there before."""
    made_by = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "one-broker", "uid": "old", "controller": True}
    return {**made_by, **other}


def broker(*owners: dict[str, Any], ends_at: str = "") -> BrokerPod:
    return BrokerPod(0, "one-broker-0", "p", "r", True, ends_at=ends_at, owners=owners, version="7")


def stranded(pod: BrokerPod, there: BrokerSet | None = THERE, now: str = LATER) -> list[BrokerPod]:
    return list(stranded_pods(CLUSTER, PodsState(there, {0: pod}), now))


def test_a_pod_of_a_stateful_set_that_is_gone_is_stranded() -> None:
    pod = broker(owner())
    assert stranded(pod) == [pod]
    assert owners_left(CLUSTER, pod, "new") == []


def test_other_owners_stay() -> None:
    other = {"apiVersion": "example.org/v1", "kind": "Snapshot", "name": "s", "uid": "old"}
    assert owners_left(CLUSTER, broker(other, owner()), "new") == [other]


@pytest.mark.parametrize(
    ("why", "there"),
    [
        ("nobody knows what is there", None),
        ("the one that is there might still be the one that is seen to end", replace(THERE, is_ending=True)),
        ("nobody knows since when it is there", replace(THERE, made_at="")),
    ],
)
def test_no_pod_is_stranded_without_a_stateful_set_that_could_adopt_it(why: str, there: BrokerSet | None) -> None:
    assert stranded(broker(owner()), there) == [], why


def test_the_garbage_collector_has_its_time() -> None:
    assert stranded(broker(owner()), now=TOO_SOON) == []


@pytest.mark.parametrize(
    ("whose", "owners"),
    [
        ("the StatefulSet that is there", [owner(uid="new")]),
        ("nobody", []),
        ("a StatefulSet of another name", [owner(name="one-broker-2")]),
        ("a StatefulSet of another kind of others", [owner(apiVersion="apps.kruise.io/v1beta1")]),
        ("another controller", [owner(kind="ReplicaSet")]),
        ("somebody who does not control it", [owner(controller=False)]),
    ],
)
def test_pods_of_others_are_left_alone(whose: str, owners: list[dict[str, Any]]) -> None:
    assert stranded(broker(*owners)) == [], whose


def test_a_pod_that_ends_is_left_alone() -> None:
    assert stranded(broker(owner(), ends_at=LATER)) == []


def test_an_adoption_is_told_as_an_event_of_the_cluster() -> None:
    told = adoption_event(CLUSTER, broker(owner()), LATER)
    assert (told["involvedObject"]["uid"], told["related"]["name"]) == ("u", "one-broker-0")
    adopts = "the StatefulSet one-broker that was made anew adopts one-broker-0, whose own one is gone"
    assert (told["reason"], told["message"]) == ("BrokerAdopted", f"broker 0 runs on: {adopts}")
