"""A volume that is declared larger grows, on a real API server; one that cannot grow says why."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from barnabas_operator.admission.dry_run import DryRun
from barnabas_operator.app.system_clock import SystemClock
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.cluster_objects import broker_objects
from barnabas_operator.planning.brokers.external_access import ExternalAccess
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.reconcile.brokers.claim_resizer import ClaimResizer
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Storage, Volume
from barnabas_operator.resources.object_meta import ObjectMeta
from e2e.world import SECONDS_MAX, World
from harness.deadline import wait_for
from harness.server_process import ServerProcess
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

OTHERS_CLAIM = "volume-0-other-broker-0"
RUNNING = {"name": "broker", "image": "i", "imageID": "i", "restartCount": 0, "ready": True, "state": {"running": {}}}
RUNS = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [RUNNING],
}
"""What a kubelet tells of a pod that is ready."""


def cluster_of(namespace: str, generation: int, *sizes: str) -> Cluster:
    volumes = tuple(Volume(id=number, size=size) for number, size in enumerate(sizes))
    meta = ObjectMeta(name="castle", namespace=namespace, generation=generation, uid=str(uuid4()))
    return Cluster(metadata=meta, spec=ClusterSpec(storage=Storage(volumes=volumes)))


@pytest.fixture
def namespace(api_server: ControlPlane) -> str:
    name = f"volumes-{uuid4().hex[:8]}"
    api_server.kubectl("create", "namespace", name)
    return name


def make_class(api_server: ControlPlane, *, can_grow: bool) -> str:
    name = f"class-{uuid4().hex[:8]}"
    made = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "allowVolumeExpansion": can_grow,
    }
    api_server.kubectl("apply", "-f-", stdin=json.dumps(made))
    return name


def make_claim(api_server: ControlPlane, namespace: str, name: str, cluster: str, storage_class: str) -> None:
    """A claim as if a disk had been found for it."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace, "labels": {"barnabas.dev/cluster": cluster}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "volumeName": f"disk-of-{name}",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    api_server.kubectl("apply", "-f-", stdin=json.dumps(claim))
    bound = json.dumps({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    api_server.kubectl("-n", namespace, "patch", "pvc", name, "--subresource=status", "--type=merge", "-p", bound)


def size_of(api_server: ControlPlane, namespace: str, name: str) -> str:
    path = "-ojsonpath={.spec.resources.requests.storage}"
    return api_server.kubectl("-n", namespace, "get", "pvc", name, path)


def grow(api_server: ControlPlane, *clusters: Cluster) -> list[Refusal | None]:
    """What one operator says to each version of a Cluster."""

    async def run() -> list[Refusal | None]:
        async with api_client(api_server) as connection:
            disks = ClaimResizer(KubeApi(connection))
            return [await disks.grow(cluster) for cluster in clusters]

    return asyncio.run(run())


def test_the_claims_of_a_volume_that_is_declared_larger_grow(api_server: ControlPlane, namespace: str) -> None:
    storage_class = make_class(api_server, can_grow=True)
    names = [f"volume-{volume}-castle-broker-{number}" for volume in (0, 1) for number in (0, 1)]
    for name in names:
        make_claim(api_server, namespace, name, "castle", storage_class)
    make_claim(api_server, namespace, OTHERS_CLAIM, "other", storage_class)
    before, after = cluster_of(namespace, 1, "1Gi", "1024Mi"), cluster_of(namespace, 2, "1Gi", "2Gi")
    assert grow(api_server, before) == [None]
    assert [size_of(api_server, namespace, name) for name in names] == ["1Gi"] * 4
    assert grow(api_server, before, after) == [None, None]
    assert [size_of(api_server, namespace, name) for name in names] == ["1Gi", "1Gi", "2Gi", "2Gi"]
    assert size_of(api_server, namespace, OTHERS_CLAIM) == "1Gi"


def test_a_claim_whose_storage_class_cannot_grow_it_says_so(api_server: ControlPlane, namespace: str) -> None:
    name = "volume-0-castle-broker-0"
    make_claim(api_server, namespace, name, "castle", make_class(api_server, can_grow=False))
    (why,) = grow(api_server, cluster_of(namespace, 1, "2Gi"))
    assert why is not None
    assert why.reason == "VolumeCannotGrow"
    assert why.message.startswith(f"the claim {name} cannot grow to 2Gi: ")
    assert "storageclass" in why.message
    assert why.message.endswith("back to what its claims have, or allowVolumeExpansion in its class")
    assert size_of(api_server, namespace, name) == "1Gi"


def dry_run(api_server: ControlPlane, cluster: Cluster) -> str | None:
    """What the webhook says before the Cluster is stored."""

    async def run() -> str | None:
        async with api_client(api_server) as opened:
            return await DryRun(KubeApi(opened), "barnabas-broker:dev", SystemClock())(cluster)

    return asyncio.run(run())


def test_a_size_that_the_storage_class_cannot_give_is_refused_at_once(api_server: ControlPlane, namespace: str) -> None:
    rigid = make_class(api_server, can_grow=False)
    make_claim(api_server, namespace, "volume-0-castle-broker-0", "castle", rigid)
    why = f"the storage class {rigid} of its claims cannot grow volumes (allowVolumeExpansion)"
    said = dry_run(api_server, cluster_of(namespace, 2, "2Gi"))
    assert said == f"spec.storage.volumes[0].size is 2Gi; allowed: 1Gi, as {why}"
    assert dry_run(api_server, cluster_of(namespace, 3, "1Gi")) is None, "it may always be what the claims have"


def test_a_size_grows_where_the_class_can_and_never_falls_below_the_claims(
    api_server: ControlPlane, namespace: str
) -> None:
    make_claim(api_server, namespace, "volume-0-castle-broker-0", "castle", make_class(api_server, can_grow=True))
    assert dry_run(api_server, cluster_of(namespace, 2, "2Gi")) is None
    said = dry_run(api_server, cluster_of(namespace, 3, "512Mi"))
    assert said == "spec.storage.volumes[0].size is 512Mi; allowed: 1Gi or more, which its claims have"


def test_the_template_of_a_claim_cannot_change_where_it_is(api_server: ControlPlane, namespace: str) -> None:
    """Why the StatefulSet is made anew when a volume is declared larger."""
    for size, refusal in (("1Gi", ""), ("2Gi", "updates to statefulset spec for fields other than")):
        made = broker_objects(cluster_of(namespace, 1, size), ExternalAccess(), "barnabas-broker:dev", 3)
        (brokers,) = (each for each in made if each["kind"] == "StatefulSet")
        asked = api_server.kubectl.ask("apply", "--server-side", "-f-", stdin=json.dumps(brokers))
        assert (asked.returncode != 0) == bool(refusal), asked.stderr
        assert refusal in asked.stderr


@pytest.fixture
def world(controllers: ControlPlane, broker: ServerProcess, tmp_path: Path) -> Iterator[World]:
    """A namespace with an operator, without its webhook."""
    name = f"volumes-{uuid4().hex[:8]}"
    controllers.kubectl("create", "namespace", name)
    found = World(controllers, name, broker, tmp_path)
    operator = found.operator()
    try:
        yield found
    finally:
        operator.close()
        controllers.kubectl("delete", "namespace", name, "--wait=false")


def make_disk(world: World, storage_class: str) -> None:
    """For the first claim of that class."""
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "hostPath": {"path": "/nobody-mounts-it"},
    }
    disk = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": storage_class}, "spec": spec}
    world.plane.kubectl("create", "-f-", stdin=json.dumps(disk))


def declare(world: World, size: str, storage_class: str) -> None:
    world.apply_cluster("one", storage={"volumes": [{"id": 0, "size": size, "storageClass": storage_class}]})


def ready(world: World) -> tuple[str, str]:
    """Status and message, once they are about the Cluster as it was applied last."""
    found = world.plane.requests.get("Cluster", world.namespace, "one") or {}
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == "Ready" and each["observedGeneration"] == found["metadata"]["generation"]:
            return each["status"], each.get("message", "")
    return "", ""


@pytest.mark.slow
def test_a_size_that_was_stored_and_cannot_be_had_is_taken_back_and_the_cluster_is_ready_again(world: World) -> None:
    rigid = make_class(world.plane, can_grow=False)
    make_disk(world, rigid)
    declare(world, "1Gi", rigid)
    wait_for(lambda: world.plane.requests.get("Pod", world.namespace, "one-broker-0"), seconds_max=SECONDS_MAX)
    world.plane.requests.merge_status("Pod", world.namespace, "one-broker-0", RUNS)
    wait_for(lambda: ready(world), lambda said: said[0] == "True", SECONDS_MAX)
    declare(world, "2Gi", rigid)
    told = "the claim volume-0-one-broker-0 cannot grow to 2Gi: "
    wait_for(lambda: ready(world), lambda said: said[0] == "False" and said[1].startswith(told), SECONDS_MAX)
    declare(world, "1Gi", rigid)
    wait_for(lambda: ready(world), lambda said: said[0] == "True", SECONDS_MAX)
