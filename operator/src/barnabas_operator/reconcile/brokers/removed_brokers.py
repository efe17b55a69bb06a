"""The claims of removed brokers: marks, keeps or deletes them."""

import logging
from collections.abc import Collection

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.claims import CLAIM, claims_of, mark_emptied
from barnabas_operator.planning.brokers.broker_claims import claims_in_use_again, claims_to_delete, claims_to_empty
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class RemovedBrokers:
    """Marks the claims of an empty broker before it is removed: nothing on them is needed.

    A Cluster that is created again starts every broker that has unmarked claims. Both methods may raise KubeUnreachable
    and KubeRefused.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def mark(self, cluster: Cluster, broker_id: int) -> None:
        """Mark the claims of a broker that is about to be removed."""
        for claim in claims_to_empty(await claims_of(self._api, cluster), broker_id):
            await mark_emptied(self._api, cluster, claim, is_emptied=True)

    async def tidy(self, cluster: Cluster, places: int, registered: Collection[int] | None) -> None:
        """Delete removed brokers' claims with `deleteClaim`; unmark claims of brokers that were added again.

        `registered` are the registered brokers; None, if they are unknown, deletes nothing.
        """
        claims = await claims_of(self._api, cluster)
        for claim in claims_in_use_again(claims, places):
            await mark_emptied(self._api, cluster, claim, is_emptied=False)
        if registered is None:
            return
        namespace = cluster.metadata.namespace or "default"
        for claim in claims_to_delete(cluster, claims, places, registered):
            log.info("%s/%s: deleting the claim %s with its broker", namespace, cluster.metadata.name, claim.name)
            await self._api.delete(CLAIM, namespace, claim.name, preconditions={"uid": claim.uid})
