"""Sets the labels and annotations of `spec.template` on the PersistentVolumeClaims of a Cluster."""

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.brokers.claim_metadata import claim_changes
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.resources.cluster import Cluster


class ClaimMetadataWriter:
    """The writer of labels and annotations on the claims of one Cluster.

    To save requests, the claims are listed only after the Cluster or its pods have changed, and after `forget`.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._seen: object = None

    def forget(self) -> None:
        """Make the next call of `apply` list the claims again, because other clients may have changed the claims."""
        self._seen = None

    async def apply(self, cluster: Cluster, pods: PodsState) -> None:
        """Set the labels and annotations that the claims lack. Raises KubeUnreachable and KubeRefused."""
        about = cluster.metadata.generation, frozenset(pod.uid for pod in pods.pods.values())
        if about == self._seen:
            return
        namespace, labels = cluster.metadata.namespace or "default", {CLUSTER_LABEL: cluster.metadata.name}
        for change in claim_changes(cluster, await self._api.listing("PersistentVolumeClaim", namespace, labels)):
            await self._api.apply(change)
        self._seen = about
