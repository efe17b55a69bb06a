"""The claims of a Cluster's disks, as Kubernetes has them."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.brokers.broker_claims import BrokerClaim
from barnabas_operator.planning.brokers.claim_resize import resize_of
from barnabas_operator.planning.object_names import CLUSTER_LABEL, EMPTIED_LABEL, disk_of, pod_name
from barnabas_operator.resources.cluster import Cluster

CLAIM: Final = "PersistentVolumeClaim"


async def claims_of(api: KubeApi, cluster: Cluster) -> list[BrokerClaim]:
    """Those that stay. Raises KubeUnreachable and KubeRefused."""
    return [claim for claim in await claims_there(api, cluster) if not claim.is_ending]


async def claims_there(api: KubeApi, cluster: Cluster) -> list[BrokerClaim]:
    """Also those that are ending. Raises KubeUnreachable and KubeRefused."""
    namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
    listed = await api.listing(CLAIM, namespace, {CLUSTER_LABEL: name})
    return [claim for each in listed for claim in _claims(each, name)]


async def rigid_classes(api: KubeApi, names: Iterable[str]) -> set[str]:
    """Of these storage classes those that cannot grow volumes. Raises KubeUnreachable and KubeRefused."""
    found = [(name, await api.get("StorageClass", None, name)) for name in names]
    return {name for name, each in found if each is not None and not each.get("allowVolumeExpansion", False)}


async def mark_emptied(api: KubeApi, cluster: Cluster, claim: BrokerClaim, *, is_emptied: bool) -> None:
    """Labels a claim whose disk was emptied, or takes the label away. Raises KubeUnreachable and KubeRefused."""
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
    yield BrokerClaim(meta["name"], meta["uid"], *disk, size, storage_class, is_emptied, is_ending, resize)
