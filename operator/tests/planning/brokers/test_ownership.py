"""The Cluster that owns an object in Kubernetes, by its owner references and its labels."""

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas_operator.planning.brokers.pods import conflict, is_owned
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import ObjectMeta

CLUSTER = Cluster(metadata=ObjectMeta(name="flights", namespace="air", uid="u-1"))
LABELS = {"app.kubernetes.io/managed-by": "barnabas-operator", "barnabas.dev/cluster": "flights"}


def owner(kind: str, name: str, api: str = "barnabas.dev/v1alpha1", uid: str = "u-1") -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}


def service(*owners: Mapping[str, Any], labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    meta = {"name": "flights-bootstrap", "ownerReferences": list(owners), "labels": labels}
    return {"kind": "Service", "metadata": {field: value for field, value in meta.items() if value}}


FOUND: dict[str, tuple[dict[str, Any], bool]] = {
    "its own": (service(owner("Cluster", "flights"), labels=LABELS), True),
    "that of an earlier Cluster of this name": (service(owner("Cluster", "flights", uid="u-0")), True),
    "one of a newer version of the API": (service(owner("Cluster", "flights", "barnabas.dev/v1")), True),
    "one that was restored without an owner": (service(labels=LABELS), True),
    "that of another Cluster": (service(owner("Cluster", "ships", uid="u-2"), labels=LABELS), False),
    "that of a Cluster of others": (service(owner("Cluster", "flights", "postgresql.cnpg.io/v1")), False),
    "that of a Deployment": (service(owner("Deployment", "web", "apps/v1"), labels=LABELS), False),
    "made by hand": (service(), False),
    "made by hand, with a label of ours": (service(labels={"barnabas.dev/cluster": "flights"}), False),
    "made by helm": (service(labels={**LABELS, "app.kubernetes.io/managed-by": "Helm"}), False),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_cluster_recognises_its_own_objects(name: str) -> None:
    found, owned = FOUND[name]
    assert is_owned(CLUSTER, found) is owned


@pytest.mark.parametrize(
    ("found", "whose"),
    [(service(), "no Cluster"), (service(owner("Cluster", "ships"), owner("App", "a")), "Cluster ships, App a")],
)
def test_a_conflict_names_the_owner_of_the_object_and_what_to_do(found: dict[str, Any], whose: str) -> None:
    todo = "delete or rename the object, or give the Cluster flights another name"
    message = f"Service flights-bootstrap already exists and belongs to {whose}; {todo}"
    assert conflict(CLUSTER, found, found) == ("ResourceConflict", message)
