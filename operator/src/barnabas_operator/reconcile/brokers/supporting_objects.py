"""Applies the objects that a Cluster's brokers need, such as Services, RBAC objects and PodDisruptionBudgets."""

import logging
from collections.abc import Mapping
from typing import Any

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import addresses_given
from barnabas_operator.manifests.cluster_objects import supporting_objects, with_node_port
from barnabas_operator.manifests.kube_object import MONITORING, Neighbours
from barnabas_operator.planning.brokers.pods import is_outside
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.planning.refusal import INVALID_SPEC, Refusal
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class SupportingObjects:
    """The supporting objects of one Cluster, such as Services.

    A deleted NodePort Service is created again with its previous node port, because clients may know that port.
    """

    def __init__(self, api: KubeApi, objects: AppliedObjects, neighbours: Neighbours) -> None:
        self._api = api
        self._neighbours = neighbours
        self._objects = objects
        self._monitors: bool | None = None

    def forget(self) -> None:
        """Check again whether the CRD of PodMonitors is installed."""
        self._monitors = None

    async def apply(self, cluster: Cluster, places: int) -> Refusal | None:
        """Apply all objects; return the error of the first refused object, or None. Raises KubeUnreachable.

        `places` is the number of brokers that need objects, including removed brokers that still have replicas.
        """
        refused, given = None, await self._given(cluster)
        for each in supporting_objects(cluster, await self.apis(), self._neighbours, places):
            try:
                await self._apply(cluster, each, with_node_port(each, given))
            except ObjectRefused as error:
                refused = refused or error.refusal
        return refused

    async def _apply(self, cluster: Cluster, item: Mapping[str, Any], pinned: Mapping[str, Any]) -> None:
        """Apply the object, with another node port if the previous one now belongs to another Service."""
        try:
            await self._objects.apply(cluster, pinned)
        except ObjectRefused as error:
            if pinned is item or error.refusal.reason != INVALID_SPEC:
                raise
            log.warning(
                "%s: the API server refused the Service with the previous node port; trying any free node port: %s",
                item["metadata"]["namespace"],
                error,
            )
            await self._objects.apply(cluster, item)

    async def _given(self, cluster: Cluster) -> Mapping[str, str]:
        if not is_outside(cluster):
            return {}
        name = brokers_name(cluster.metadata.name)
        found = await self._api.get("StatefulSet", cluster.metadata.namespace or "default", name)
        return addresses_given(found) if found is not None else {}

    async def apis(self) -> list[str]:
        """Return the optional API groups that the API server has. Raises KubeUnreachable and KubeRefused."""
        if self._monitors is None:
            self._monitors = await self._api.serves("PodMonitor")
        return [MONITORING] if self._monitors else []
