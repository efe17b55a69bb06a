"""The deletion of a Cluster, or of its namespace, and what is deleted with it.

Kubernetes' controllers run: they make pods and claims, which no node runs, and delete namespaces.
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
    """Make a Cluster of one broker with two disks; return when Kubernetes has made its pod and claims."""
    volumes = [{"id": 0, "size": "1Gi", "deleteClaim": True}, {"id": 1, "size": "1Gi"}]
    world.apply_cluster(name, brokers={"replicas": BROKERS}, storage={"volumes": volumes}, **spec)
    wait_for(lambda: len(names(world, name, "Pod")), lambda count: count == BROKERS, PATIENCE_S)
    wait_for(lambda: names(world, name, "PersistentVolumeClaim"), lambda found: found == claims(name), PATIENCE_S)


def claims(cluster: str) -> set[str]:
    return {each.format(cluster) for each in CLAIMS}


def names(world: World, cluster: str, *kinds: str) -> set[str]:
    """Return the names of a Cluster's objects of these kinds."""
    found = (world.plane.requests.listing(kind, world.namespace, {LABEL: cluster}) for kind in kinds)
    return {each["metadata"]["name"] for items in found for each in items}


def test_deleting_a_cluster_deletes_what_its_deletion_policy_says(world: World) -> None:
    make(world, "gone", deletionPolicy="Delete")
    make(world, "kept")
    for name in ("gone", "kept"):
        world.kubectl("create", "-f-", stdin=lease_of(name))
    world.kubectl("delete", "cluster", "gone", "kept", PATIENTLY)
    # Kubernetes keeps claims until no pod uses them.
    kinds = ("Pod", "PersistentVolumeClaim", "Lease")
    wait_for(lambda: names(world, "gone", *kinds), lambda left: not left, PATIENCE_S)
    # A claim with deleteClaim is deleted with the Cluster under each policy.
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
    """Return the manifest of a lease as brokers write it."""
    meta = {"name": f"{cluster}.broker-0", "labels": {LABEL: cluster}}
    return json.dumps({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta, "spec": {}})


def test_claims_have_no_label_that_argo_cd_tracks(world: World) -> None:
    """Kubernetes copies the selector's labels to claims, which have no owner; Argo CD would prune tracked ones."""
    make(world, "one")
    for claim in world.plane.requests.listing("PersistentVolumeClaim", world.namespace, {LABEL: "one"}):
        assert claim["metadata"]["labels"].keys() == {"app.kubernetes.io/name", LABEL}
        assert "ownerReferences" not in claim["metadata"]


def test_resources_in_a_deleted_namespace_do_not_block_its_deletion(world: World) -> None:
    make(world, "one", deletionPolicy="Protect")
    for name, kind in (("kept", "Retain"), ("gone", "Delete"), ("guarded", "Protect")):
        world.apply(name, partitions=1, deletionPolicy=kind)
    world.apply("of-nobody", cluster="two", partitions=1, deletionPolicy="Protect")
    world.await_ready("kept", "gone", "guarded")
    world.plane.kubectl("delete", "namespace", world.namespace, PATIENTLY)


def test_clusters_keep_their_disks_if_their_definition_is_deleted_and_applied_again(world: World) -> None:
    """Kubernetes deletes every Cluster together with the definition."""
    make(world, "one")
    release_all_but(world)
    world.plane.kubectl("delete", "crd", "clusters.barnabas.dev", PATIENTLY)
    try:
        wait_for(lambda: names(world, "one", "StatefulSet", "Pod"), lambda left: not left, PATIENCE_S)
        left = names(world, "one", "PersistentVolumeClaim")
    finally:
        define(world.plane)
    assert left >= disks(claims("one"), 1), "claims without deleteClaim must be kept"
    make(world, "one")
