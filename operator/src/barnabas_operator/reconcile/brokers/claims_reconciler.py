"""Creates, labels, grows and deletes the PersistentVolumeClaims of a Cluster's brokers."""

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence

from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.kube.gather import CLAIM, claims_of, mark_emptied, storage_classes
from barnabas_operator.manifests.stateful_set import claims_of_pod
from barnabas_operator.planning.brokers.claims import (
    added_volumes,
    claims_to_discard,
    claims_to_grow,
    claims_to_make,
    refuse_restart,
    ungrown,
)
from barnabas_operator.planning.brokers.pods import (
    BrokerClaim,
    BrokerPod,
    PodsState,
    claim_changes,
    claims_in_use_again,
    claims_to_delete,
    claims_to_erase,
)
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json

log = logging.getLogger(__name__)


class ClaimsReconciler:
    """The reconciler of one Cluster's claims. All methods but `forget` may raise KubeUnreachable and KubeRefused.

    EMPTIED_LABEL marks each claim whose volume holds no needed data. When a deleted Cluster is created again, the
    operator starts each broker that has a claim without EMPTIED_LABEL.
    """

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._grown: tuple[int | None, Refusal | None] | None = None
        self._labelled: object = None

    def forget(self) -> None:
        """Check labels and sizes again: other clients may have changed claims, or a storage class allows expansion."""
        self._grown = self._labelled = None

    async def label(self, cluster: Cluster, pods: PodsState) -> None:
        """Set the labels and annotations of `spec.template` if the Cluster or its pods changed, or after `forget`."""
        about = cluster.metadata.generation, frozenset(pod.uid for pod in pods.pods.values())
        if about == self._labelled:
            return
        namespace, labels = cluster.metadata.namespace or "default", {CLUSTER_LABEL: cluster.metadata.name}
        for change in claim_changes(cluster, await self._api.listing(CLAIM, namespace, labels)):
            await self._api.apply(change)
        self._labelled = about

    async def grow(self, cluster: Cluster, claims: Iterable[BrokerClaim]) -> Refusal | None:
        """Grow the claims if the Cluster has changed, or after `forget`; return why a claim cannot grow, or None."""
        generation = cluster.metadata.generation
        if self._grown is None or self._grown[0] != generation:
            wanted = claims_to_grow(cluster, claims)
            said = await asyncio.gather(*(self._resize(cluster, name, size) for name, size in wanted.items()))
            self._grown = generation, next(filter(None, said), None)
        return self._grown[1]

    async def refuse_restart(
        self, cluster: Cluster, pods: PodsState, restarting: Sequence[BrokerPod]
    ) -> Refusal | None:
        """Create the claims of added volumes; return why the pods must not restart yet, such as an unbound claim."""
        with_more = [pod for pod in restarting if added_volumes(cluster, pod)]
        if not with_more:
            return None
        classes = await storage_classes(self._api, cluster)
        for pod in with_more:
            await self._make(cluster, pod, claims_to_make(cluster, pods, pod, classes))
        return next(filter(None, (refuse_restart(cluster, pods, pod, classes) for pod in with_more)), None)

    async def discard(self, cluster: Cluster, pods: PodsState) -> None:
        """Delete the claims that are no longer needed and were never bound to a volume."""
        if all(claim.is_bound for claim in pods.claims):
            return
        for claim in claims_to_discard(cluster, pods, await storage_classes(self._api, cluster)):
            try:
                await self._delete(cluster, claim, ", which was never bound to a disk", resourceVersion=claim.version)
            except KubeRefused as error:
                if error.status != CONFLICT:
                    raise

    async def mark(self, cluster: Cluster, claims: Iterable[BrokerClaim], broker_id: int) -> None:
        """Label the claims of a drained broker that is about to be removed.

        Claims that have the label in `claims` are labelled again, because `tidy` may have removed it since.
        """
        for claim in claims:
            if claim.broker_id == broker_id:
                await mark_emptied(self._api, cluster, claim, is_emptied=True)

    async def tidy(self, cluster: Cluster, pods: PodsState, registered: Collection[int] | None) -> None:
        """Delete the emptied claims of removed brokers, but only for volumes with `deleteClaim`.

        The claims of all other brokers lose EMPTIED_LABEL, which an earlier removal may have set. The claims of brokers
        whose ids are in `registered` are kept; if `registered` is None (unknown), all claims are kept.
        """
        for claim in claims_in_use_again(pods.lasting_claims, pods.count):
            await mark_emptied(self._api, cluster, claim, is_emptied=False)
        if registered is not None:
            for claim in claims_to_delete(cluster, pods.lasting_claims, pods.count, registered):
                await self._delete(cluster, claim, " of a removed broker")

    async def erase(self, cluster: Cluster) -> None:
        """Delete the claims of a deleted Cluster by its deletion policy."""
        for claim in claims_to_erase(cluster, await claims_of(self._api, cluster)):
            await self._delete(cluster, claim, ", because its Cluster is deleted")

    async def _delete(self, cluster: Cluster, claim: BrokerClaim, why: str, **seen: str) -> None:
        namespace = cluster.metadata.namespace or "default"
        log.info("%s/%s: deleting the claim %s%s", namespace, cluster.metadata.name, claim.name, why)
        await self._api.delete(CLAIM, namespace, claim.name, preconditions={"uid": claim.uid, **seen})

    async def _make(self, cluster: Cluster, pod: BrokerPod, names: Iterable[str]) -> None:
        made: dict[str, Json] = {each["metadata"]["name"]: each for each in claims_of_pod(cluster, pod.name)}
        for name in names:
            log.info("%s/%s: creating the claim %s", cluster.metadata.namespace, cluster.metadata.name, name)
            try:
                await self._api.create(made[name])
            except KubeRefused as error:
                if error.status != CONFLICT:
                    raise

    async def _resize(self, cluster: Cluster, name: str, size: str) -> Refusal | None:
        namespace = cluster.metadata.namespace or "default"
        try:
            await self._api.patch(CLAIM, namespace, name, {"spec": {"resources": {"requests": {"storage": size}}}})
        except KubeRefused as error:
            return ungrown(name, size, error.message)
        log.info("%s/%s: the claim was resized to %s", namespace, name, size)
        return None
