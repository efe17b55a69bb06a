"""What becomes of a Cluster and all that it had when it is deleted, or its namespace is.

The controllers of Kubernetes run: they make pods and claims, without a node to run them on, and take namespaces away.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest

from e2e.world import World, release_all_but
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import ServerProcess
from local_kubernetes.apiserver import define
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kubectl import PATIENTLY

pytestmark = pytest.mark.slow
BROKERS = 1
LABEL = "barnabas.dev/cluster"
CLAIMS = {f"volume-{volume}-{{}}-broker-{number}" for volume in (0, 1) for number in range(BROKERS)}


@pytest.fixture
def world(controllers: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    """A namespace with an operator, and no Cluster yet."""
    name = f"ends-{uuid4().hex[:8]}"
    controllers.kubectl("create", "namespace", name)
    found = World(controllers, name, broker, tmp_path)
    with closing(found.operator()):
        yield found


def make(world: World, name: str, **spec: object) -> None:
    """A Cluster of one broker with two disks; returns when Kubernetes has made its pod and claims."""
    volumes = [{"id": 0, "size": "1Gi", "deleteClaim": True}, {"id": 1, "size": "1Gi"}]
    world.apply_cluster(name, brokers={"replicas": BROKERS}, storage={"volumes": volumes}, **spec)
    wait_for(lambda: len(names(world, name, "Pod")), lambda count: count == BROKERS, PATIENCE_S)
    wait_for(lambda: names(world, name, "PersistentVolumeClaim"), lambda found: found == claims(name), PATIENCE_S)


def claims(cluster: str) -> set[str]:
    return {each.format(cluster) for each in CLAIMS}


def names(world: World, cluster: str, *kinds: str) -> set[str]:
    """Of what a Cluster has of these kinds."""
    found = (world.plane.requests.listing(kind, world.namespace, {LABEL: cluster}) for kind in kinds)
    return {each["metadata"]["name"] for items in found for each in items}


def test_a_cluster_takes_along_what_its_deletion_policy_says(world: World) -> None:
    make(world, "gone", deletionPolicy="Delete")
    make(world, "kept")
    for name in ("gone", "kept"):
        world.kubectl("create", "-f-", stdin=lease_of(name))
    world.kubectl("delete", "cluster", "gone", "kept", PATIENTLY)
    # Kubernetes keeps claims until it has seen that no pod uses them.
    kinds = ("Pod", "PersistentVolumeClaim", "Lease")
    wait_for(lambda: names(world, "gone", *kinds), lambda left: not left, PATIENCE_S)
    # That of a disk whose claim goes with the Cluster, whatever the policy.
    wait_for(
        lambda: names(world, "kept", "PersistentVolumeClaim"),
        lambda found: found == disks(claims("kept"), 1),
        PATIENCE_S,
    )
    assert names(world, "kept", "Lease") == {"kept.broker-0"}
    owned = ("Service", "StatefulSet", "ConfigMap", "RoleBinding")
    wait_for(lambda: names(world, "kept", *owned), lambda left: not left, PATIENCE_S)


def disks(found: set[str], volume: int) -> set[str]:
    return {name for name in found if name.startswith(f"volume-{volume}-")}


def lease_of(cluster: str) -> str:
    """As brokers write it."""
    meta = {"name": f"{cluster}.broker-0", "labels": {LABEL: cluster}}
    return json.dumps({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}})


def test_claims_carry_no_label_that_argo_cd_tracks_by(world: World) -> None:
    """Kubernetes copies the selector's labels to claims, which nobody owns: a sync with pruning would take them."""
    make(world, "one")
    for claim in world.plane.requests.listing("PersistentVolumeClaim", world.namespace, {LABEL: "one"}):
        assert claim["metadata"]["labels"].keys() == {"app.kubernetes.io/name", LABEL}
        assert "ownerReferences" not in claim["metadata"]


def test_nothing_keeps_a_namespace_that_ends(world: World) -> None:
    make(world, "one", deletionPolicy="Protect")
    for name, kind in (("kept", "Retain"), ("gone", "Delete"), ("guarded", "Protect")):
        world.apply(name, partitions=1, deletionPolicy=kind)
    world.apply("of-nobody", cluster="two", partitions=1, deletionPolicy="Protect")
    world.await_ready("kept", "gone", "guarded")
    world.plane.kubectl("delete", "namespace", world.namespace, PATIENTLY)


def test_clusters_whose_definition_was_deleted_have_their_disks_when_they_are_applied_again(world: World) -> None:
    """Kubernetes deletes every Cluster with the definition."""
    make(world, "one")
    release_all_but(world)
    world.plane.kubectl("delete", "crd", "clusters.barnabas.dev", PATIENTLY)
    try:
        wait_for(lambda: names(world, "one", "StatefulSet", "Pod"), lambda left: not left, PATIENCE_S)
        left = names(world, "one", "PersistentVolumeClaim")
    finally:
        define(world.plane)
    assert left >= disks(claims("one"), 1), "and none of a volume without deleteClaim has gone"
    make(world, "one")
