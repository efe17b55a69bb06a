"""Reads and labels the PersistentVolumeClaims of a Cluster's brokers."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.brokers.claims import StorageClasses, storage_classes_of
from barnabas_operator.planning.brokers.pods import BrokerClaim, resize_of
from barnabas_operator.planning.object_names import CLUSTER_LABEL, EMPTIED_LABEL, disk_of, pod_name
from barnabas_operator.resources.cluster import Cluster

CLAIM: Final = "PersistentVolumeClaim"
HAVE_OR_HAD_A_VOLUME: Final = ("Bound", "Lost")
"""The phases of claims that are bound to a volume, or whose volume no longer exists."""


async def claims_of(api: KubeApi, cluster: Cluster) -> list[BrokerClaim]:
    """Return the claims of a Cluster's brokers, except claims that are being deleted.

    Raises KubeUnreachable and KubeRefused.
    """
    return [claim for claim in await claims_there(api, cluster) if not claim.is_ending]


async def claims_there(api: KubeApi, cluster: Cluster) -> list[BrokerClaim]:
    """Return all claims of a Cluster's brokers, even claims that are being deleted.

    Raises KubeUnreachable and KubeRefused.
    """
    namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
    listed = await api.listing(CLAIM, namespace, {CLUSTER_LABEL: name})
    return [claim for each in listed for claim in _claims(each, name)]


async def storage_classes(api: KubeApi, cluster: Cluster) -> StorageClasses:
    """Return the storage classes. Raises KubeUnreachable and KubeRefused.

    If the Cluster names a StorageClass that does not exist, the result also has each `storageClassName` of the
    PersistentVolumes, because volumes that were created manually need no StorageClass.
    """
    classes = storage_classes_of(await api.listing("StorageClass", None, {}))
    if not any(map(classes.lacks, cluster.spec.storage.volumes)):
        return classes
    made = await api.listing("PersistentVolume", None, {})
    return classes.with_names(each["spec"].get("storageClassName", "") for each in made)


async def mark_emptied(api: KubeApi, cluster: Cluster, claim: BrokerClaim, *, is_emptied: bool) -> None:
    """Label a claim whose broker was drained, or remove the label. Raises KubeUnreachable and KubeRefused."""
    change = {"metadata": {"labels": {EMPTIED_LABEL: "true" if is_emptied else None}}}
    await api.patch(CLAIM, cluster.metadata.namespace or "default", claim.name, change)


def _claims(found: Mapping[str, Any], cluster: str) -> Iterator[BrokerClaim]:
    meta, spec = found["metadata"], found["spec"]
    disk = disk_of(meta["name"], cluster)
    if disk is None:
        return
    size, storage_class = spec["resources"]["requests"]["storage"], spec.get("storageClassName")
    is_emptied, is_ending = EMPTIED_LABEL in meta["labels"], "deletionTimestamp" in meta
    resize = resize_of(found, pod_name(cluster, disk[1]))
    is_bound = bool(spec.get("volumeName")) or found.get("status", {}).get("phase") in HAVE_OR_HAD_A_VOLUME
    version = meta.get("resourceVersion", "")
    yield BrokerClaim(
        meta["name"], meta["uid"], *disk, size, storage_class, is_emptied, is_ending, resize, is_bound, version
    )
