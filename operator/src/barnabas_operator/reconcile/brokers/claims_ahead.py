"""Creates the claims of added volumes before brokers restart, and deletes unneeded claims that were never bound."""

import logging
from collections.abc import Iterable, Sequence

from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.kube.claims import CLAIM, storage_classes
from barnabas_operator.manifests.stateful_set import claims_of_pod
from barnabas_operator.planning.brokers.claims_ahead import (
    added_volumes,
    claims_to_discard,
    claims_to_make,
    refuse_restart,
)
from barnabas_operator.planning.brokers.pods import BrokerPod, PodsState
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

log = logging.getLogger(__name__)


class ClaimsAhead:
    """The claims for added volumes of one Cluster. Both methods raise KubeUnreachable and KubeRefused."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def refuse(self, cluster: Cluster, pods: PodsState, restarting: Sequence[BrokerPod]) -> Refusal | None:
        """Create the missing claims; return why the pods must not restart yet, such as a claim that is not bound."""
        with_more = [pod for pod in restarting if added_volumes(cluster, pod)]
        if not with_more:
            return None
        classes = await storage_classes(self._api, cluster)
        for pod in with_more:
            await self._make(cluster, pod, claims_to_make(cluster, pods, pod, classes))
        refusals = (refuse_restart(cluster, pods, pod, classes) for pod in with_more)
        return next((refusal for refusal in refusals if refusal is not None), None)

    async def discard(self, cluster: Cluster, pods: PodsState) -> None:
        """Delete the claims that are no longer needed and were never bound to a volume."""
        if all(claim.is_bound for claim in pods.claims):
            return
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        for claim in claims_to_discard(cluster, pods, await storage_classes(self._api, cluster)):
            log.info("%s/%s: deleting the claim %s, which was never bound to a disk", namespace, name, claim.name)
            as_seen = {"uid": claim.uid, "resourceVersion": claim.version}
            try:
                await self._api.delete(CLAIM, namespace, claim.name, preconditions=as_seen)
            except KubeRefused as error:
                if error.status != CONFLICT:
                    raise

    async def _make(self, cluster: Cluster, pod: BrokerPod, names: Iterable[str]) -> None:
        made: dict[str, Json] = {each["metadata"]["name"]: each for each in claims_of_pod(cluster, pod.name)}
        for name in names:
            log.info("%s/%s: creating the claim %s", cluster.metadata.namespace, cluster.metadata.name, name)
            try:
                await self._api.create(made[name])
            except KubeRefused as error:
                if error.status != CONFLICT:
                    raise
