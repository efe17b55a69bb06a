"""Marks, keeps or deletes the claims of removed brokers."""

import logging
from collections.abc import Collection

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.claims import CLAIM, claims_of, mark_emptied
from barnabas_operator.planning.brokers.broker_claims import claims_in_use_again, claims_to_delete, claims_to_empty
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class RemovedBrokers:
    """The claims of one Cluster's removed brokers. Both methods may raise KubeUnreachable and KubeRefused.

    EMPTIED_LABEL marks each claim whose volume holds no needed data. When a deleted Cluster is created again, the
    operator starts each broker that has a claim without EMPTIED_LABEL.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def mark(self, cluster: Cluster, broker_id: int) -> None:
        """Label the claims of a drained broker that is about to be removed."""
        for claim in claims_to_empty(await claims_of(self._api, cluster), broker_id):
            await mark_emptied(self._api, cluster, claim, is_emptied=True)

    async def tidy(self, cluster: Cluster, places: int, registered: Collection[int] | None) -> None:
        """Delete the emptied claims of removed brokers, but only for volumes with `deleteClaim`.

        A broker with the id `places` or a higher id counts as removed. The claims of all other brokers lose
        EMPTIED_LABEL, which an earlier removal may have set. The claims of brokers whose ids are in `registered` are
        kept; if `registered` is None (unknown), all claims are kept.
        """
        claims = await claims_of(self._api, cluster)
        for claim in claims_in_use_again(claims, places):
            await mark_emptied(self._api, cluster, claim, is_emptied=False)
        if registered is None:
            return
        namespace = cluster.metadata.namespace or "default"
        for claim in claims_to_delete(cluster, claims, places, registered):
            log.info("%s/%s: deleting the claim %s of a removed broker", namespace, cluster.metadata.name, claim.name)
            await self._api.delete(CLAIM, namespace, claim.name, preconditions={"uid": claim.uid})
