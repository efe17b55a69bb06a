"""Has the claims of a Cluster's disks grow to what is declared."""

import asyncio
import logging
from typing import Final

from barnabas_operator.kube.api import KubeApi, KubeRefused
from barnabas_operator.planning.claim_growth import claims_to_grow
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.planning.topic_checks import Refusal
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

CLAIM: Final = "PersistentVolumeClaim"
CANNOT_GROW: Final = "VolumeCannotGrow"


class ClaimGrowth:
    """Looks once for each version of the Cluster, and again after `forget`."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._seen: tuple[int | None, Refusal | None] | None = None

    def forget(self) -> None:
        """Look again: a storage class that could not, may be able to now."""
        self._seen = None

    async def grow(self, cluster: Cluster) -> Refusal | None:
        """Why a claim stays as it is, if one does. Raises KubeUnreachable."""
        generation = cluster.metadata.generation
        if self._seen is None or self._seen[0] != generation:
            self._seen = generation, await self._grow(cluster)
        return self._seen[1]

    async def _grow(self, cluster: Cluster) -> Refusal | None:
        namespace = cluster.metadata.namespace or "default"
        found = await self._api.listing(CLAIM, namespace, {CLUSTER_LABEL: cluster.metadata.name})
        claims = {each["metadata"]["name"]: each["spec"]["resources"]["requests"]["storage"] for each in found}
        wanted = claims_to_grow(cluster, claims)
        said = await asyncio.gather(*(self._resize(namespace, name, size) for name, size in wanted.items()))
        return next((refusal for refusal in said if refusal is not None), None)

    async def _resize(self, namespace: str, name: str, size: str) -> Refusal | None:
        change = {"spec": {"resources": {"requests": {"storage": size}}}}
        try:
            await self._api.patch(CLAIM, namespace, name, change)
        except KubeRefused as error:
            return Refusal(CANNOT_GROW, f"the claim {name} cannot grow to {size}: {error.message}")
        log.info("%s/%s: grows to %s", namespace, name, size)
        return None
