"""Deletes the Kubernetes objects of listeners, brokers and settings that a Cluster no longer has."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.cluster_objects import leftover_services
from barnabas_operator.manifests.stateful_set import leftover_config_maps
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects
from barnabas_operator.reconcile.brokers.claims_reconciler import ClaimsReconciler
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

Choose = Callable[[Cluster, PodsState, Iterable[Json]], list[Json]]
CHOSEN: Final[Mapping[str, Choose]] = {"Service": leftover_services, "ConfigMap": leftover_config_maps}
"""The functions that choose the objects to delete, by kind."""


class GarbageCollector:
    """The garbage collector of one Cluster.

    `remove` does nothing unless the Cluster, its StatefulSet or the set of registered brokers has changed, a rolling
    restart has begun or ended, or `forget` was called.
    """

    def __init__(self, api: KubeApi, objects: AppliedObjects, claims: ClaimsReconciler) -> None:
        self._api = api
        self._objects = objects
        self._claims = claims
        self._seen: object = None

    def forget(self) -> None:
        """Make the next call of `remove` list the objects again; a previous leader may have left unneeded objects."""
        self._seen = None

    async def remove(self, cluster: Cluster, pods: PodsState, state: ClusterState | None) -> None:
        """Delete leftover objects. `state` is None if no broker answers; then no claim of a removed broker is deleted.

        Raises KubeUnreachable and KubeRefused.
        """
        registered = state.registered if state is not None else None
        about = cluster.metadata.generation, pods.broker_set, pods.is_rolled_out, registered
        if about == self._seen:
            return
        for kind, choose in CHOSEN.items():
            await self._remove(kind, choose, cluster, pods)
        await self._claims.tidy(cluster, pods, registered)
        self._seen = about

    async def _remove(self, kind: str, choose: Choose, cluster: Cluster, pods: PodsState) -> None:
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        found = await self._api.listing(kind, namespace, {CLUSTER_LABEL: name})
        for each in choose(cluster, pods, found):
            await self._objects.remove(kind, each)
