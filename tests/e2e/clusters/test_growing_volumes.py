"""A volume's claims grow with its declared size, on a real API server; a claim that cannot grow gives the reason."""

import json
from uuid import uuid4

import pytest

from barnabas_operator.admission import DryRun
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import claims_of
from barnabas_operator.manifests.cluster_objects import broker_objects
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.reconcile.brokers.applied_objects import ClaimsReconciler
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Storage, Volume
from barnabas_operator.resources.kind import ObjectMeta
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.kube_client import api_client

OTHERS_CLAIM = "volume-0-other-broker-0"


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
    """Make a claim that looks bound to a disk."""
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


async def grow(api_server: ControlPlane, *clusters: Cluster) -> list[Refusal | None]:
    """Return the refusal that one operator gives for each version of a Cluster."""
    async with api_client(api_server) as connection:
        api = KubeApi(connection)
        claims = ClaimsReconciler(api)
        return [await claims.grow(cluster, await claims_of(api, cluster)) for cluster in clusters]


async def test_claims_grow_if_their_volume_is_declared_larger(api_server: ControlPlane, namespace: str) -> None:
    storage_class = make_class(api_server, can_grow=True)
    names = [f"volume-{volume}-castle-broker-{number}" for volume in (0, 1) for number in (0, 1)]
    for name in names:
        make_claim(api_server, namespace, name, "castle", storage_class)
    make_claim(api_server, namespace, OTHERS_CLAIM, "other", storage_class)
    before, after = cluster_of(namespace, 1, "1Gi", "1024Mi"), cluster_of(namespace, 2, "1Gi", "2Gi")
    assert await grow(api_server, before) == [None]
    assert [size_of(api_server, namespace, name) for name in names] == ["1Gi"] * 4
    assert await grow(api_server, before, after) == [None, None]
    assert [size_of(api_server, namespace, name) for name in names] == ["1Gi", "1Gi", "2Gi", "2Gi"]
    assert size_of(api_server, namespace, OTHERS_CLAIM) == "1Gi"


async def test_a_claim_that_its_storage_class_cannot_expand_is_reported(
    api_server: ControlPlane, namespace: str
) -> None:
    name = "volume-0-castle-broker-0"
    make_claim(api_server, namespace, name, "castle", make_class(api_server, can_grow=False))
    (why,) = await grow(api_server, cluster_of(namespace, 1, "2Gi"))
    assert why is not None
    assert why.reason == "VolumeCannotGrow"
    assert why.message.startswith(f"the claim {name} cannot grow to 2Gi: ")
    assert "storageclass" in why.message
    assert why.message.endswith(
        "back to the size of the claims, or set allowVolumeExpansion to true in the storage class"
    )
    assert size_of(api_server, namespace, name) == "1Gi"


async def dry_run(api_server: ControlPlane, cluster: Cluster) -> str | None:
    """Return the webhook's refusal before the Cluster is stored."""
    async with api_client(api_server) as opened:
        return await DryRun(KubeApi(opened), "barnabas-broker:dev", SystemClock())(cluster)


async def test_the_webhook_refuses_a_larger_size_if_the_storage_class_cannot_expand(
    api_server: ControlPlane, namespace: str
) -> None:
    rigid = make_class(api_server, can_grow=False)
    make_claim(api_server, namespace, "volume-0-castle-broker-0", "castle", rigid)
    why = f"the storage class {rigid} of the claims does not set allowVolumeExpansion to true"
    said = await dry_run(api_server, cluster_of(namespace, 2, "2Gi"))
    assert said == f"spec.storage.volumes[0].size is 2Gi; allowed: 1Gi, because {why}"
    assert await dry_run(api_server, cluster_of(namespace, 3, "1Gi")) is None, "it may always be what the claims have"


def test_the_claim_template_of_a_stateful_set_cannot_change_in_place(api_server: ControlPlane, namespace: str) -> None:
    """This is why the operator makes the StatefulSet again when a volume is declared larger."""
    for size, refusal in (("1Gi", ""), ("2Gi", "updates to statefulset spec for fields other than")):
        made = broker_objects(cluster_of(namespace, 1, size), ExternalAccess(), "barnabas-broker:dev", 3)
        (brokers,) = (each for each in made if each["kind"] == "StatefulSet")
        asked = api_server.kubectl.ask("apply", "--server-side", "-f-", stdin=json.dumps(brokers))
        assert (asked.returncode != 0) == bool(refusal), asked.stderr
        assert refusal in asked.stderr
