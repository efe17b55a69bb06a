"""Takes away what a Cluster had for listeners, brokers and settings that it has no more."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas_operator.handlers.applied_objects import AppliedObjects
from barnabas_operator.handlers.removed_brokers import RemovedBrokers
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.config_maps import leftover_config_maps
from barnabas_operator.manifests.services import leftover_services
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.object_names import CLUSTER_LABEL, lag_exporter_name
from barnabas_operator.planning.ownership import is_owned
from barnabas_operator.planning.pods import PodsState
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

Json = Mapping[str, Any]
LAG_EXPORTER_KINDS: Final = ("Deployment", "PodMonitor")
Choose = Callable[[Cluster, PodsState, Iterable[Json]], list[Json]]
CHOSEN: Final[Mapping[str, Choose]] = {"Service": leftover_services, "ConfigMap": leftover_config_maps}
"""By kind, which of those found go. Load balancers cost money, and node ports are few."""


class Leftovers:
    """Looks when the Cluster, its StatefulSet or who is registered has changed, and again after `forget`.

    Each look is a listing.
    """

    def __init__(self, api: KubeApi, objects: AppliedObjects) -> None:
        self._api = api
        self._objects = objects
        self._removed = RemovedBrokers(api)
        self._seen: object = None

    def forget(self) -> None:
        """Look again: an operator of before may have left something."""
        self._seen = None

    async def remove(self, cluster: Cluster, pods: PodsState, state: ClusterState | None) -> None:
        """`state` is what the brokers say; None where none of them answers. Raises KubeUnreachable and KubeRefused."""
        registered = state.registered if state is not None else None
        about = cluster.metadata.generation, pods.broker_set, pods.is_settled, registered
        if about == self._seen:
            return
        for kind, choose in CHOSEN.items():
            await self._remove(kind, choose, cluster, pods)
        if cluster.spec.lag_exporter is None:
            await self._remove_lag_exporter(cluster)
        await self._removed.tidy(cluster, pods.count, registered)
        self._seen = about

    async def _remove(self, kind: str, choose: Choose, cluster: Cluster, pods: PodsState) -> None:
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        found = await self._api.listing(kind, namespace, {CLUSTER_LABEL: name})
        for each in choose(cluster, pods, found):
            await self._delete(kind, each)

    async def _remove_lag_exporter(self, cluster: Cluster) -> None:
        """There may be no such kind as a PodMonitor: then there is none of them either."""
        for kind in LAG_EXPORTER_KINDS:
            name = lag_exporter_name(cluster.metadata.name)
            found = await self._api.get(kind, cluster.metadata.namespace or "default", name)
            if found is not None and is_owned(cluster, found):
                await self._delete(kind, found)

    async def _delete(self, kind: str, found: Json) -> None:
        meta = found["metadata"]
        log.info("%s: %s %s is of no use any more, and goes", meta["namespace"], kind, meta["name"])
        self._objects.forget_one(kind, meta["name"])
        await self._api.delete(kind, meta["namespace"], meta["name"], preconditions={"uid": meta["uid"]})
