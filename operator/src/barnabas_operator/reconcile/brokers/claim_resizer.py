"""Grows the PersistentVolumeClaims of a Cluster as declared.

Refuses changes of volumes after which brokers would no longer mount claims with records.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from barnabas_operator.kube.api import KubeApi, KubeRefused
from barnabas_operator.kube.claims import CLAIM, claims_of
from barnabas_operator.planning.brokers.broker_claims import BrokerClaim, claims_to_erase
from barnabas_operator.planning.brokers.claim_growth import claims_to_grow, refuse_disks, ungrown
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster, Volume

log = logging.getLogger(__name__)


class ClaimResizer:
    """The resizer of one Cluster's claims. It caches the claims until the Cluster changes or `forget` is called."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._found: tuple[int | None, Sequence[BrokerClaim]] | None = None
        self._grown: tuple[int | None, Refusal | None] | None = None

    def forget(self) -> None:
        """List the claims again, because a storage class may now allow expansion."""
        self._found = self._grown = None

    async def refuse(self, cluster: Cluster, volumes: Iterable[Volume]) -> Refusal | None:
        """Return why the volumes cannot be changed as declared, or None. Raises KubeUnreachable and KubeRefused."""
        return refuse_disks(cluster, volumes, await self._claims(cluster))

    async def grow(self, cluster: Cluster) -> Refusal | None:
        """Grow the claims if the Cluster has changed or `forget` was called; return why a claim cannot grow, or None.

        Raises KubeUnreachable and KubeRefused.
        """
        generation = cluster.metadata.generation
        if self._grown is None or self._grown[0] != generation:
            self._grown = generation, await self._grow(cluster)
        return self._grown[1]

    async def erase(self, cluster: Cluster) -> None:
        """Delete the claims of a deleted Cluster by its deletion policy. Raises KubeUnreachable and KubeRefused."""
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        for claim in claims_to_erase(cluster, await claims_of(self._api, cluster)):
            log.info("%s/%s: deleting the claim %s, because its Cluster is deleted", namespace, name, claim.name)
            await self._api.delete(CLAIM, namespace, claim.name, preconditions={"uid": claim.uid})

    async def _grow(self, cluster: Cluster) -> Refusal | None:
        namespace = cluster.metadata.namespace or "default"
        wanted = claims_to_grow(cluster, await self._claims(cluster))
        said = await asyncio.gather(*(self._resize(namespace, name, size) for name, size in wanted.items()))
        return next((refusal for refusal in said if refusal is not None), None)

    async def _claims(self, cluster: Cluster) -> Sequence[BrokerClaim]:
        generation = cluster.metadata.generation
        if self._found is None or self._found[0] != generation:
            self._found = generation, await claims_of(self._api, cluster)
        return self._found[1]

    async def _resize(self, namespace: str, name: str, size: str) -> Refusal | None:
        change = {"spec": {"resources": {"requests": {"storage": size}}}}
        try:
            await self._api.patch(CLAIM, namespace, name, change)
        except KubeRefused as error:
            return ungrown(name, size, error.message)
        log.info("%s/%s: the claim was resized to %s", namespace, name, size)
        return None
