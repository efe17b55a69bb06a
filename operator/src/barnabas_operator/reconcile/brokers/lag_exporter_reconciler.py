"""Applies or deletes the lag exporter of a Cluster."""

import logging
from typing import Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.lag_exporter import lag_exporter_objects
from barnabas_operator.planning.brokers.ownership import is_owned
from barnabas_operator.planning.object_names import lag_exporter_name
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.reconcile.brokers.supporting_objects import SupportingObjects
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)

KINDS: Final = ("Deployment", "PodMonitor", "Secret")


class LagExporterReconciler:
    """The reconciler of one Cluster's lag exporter."""

    def __init__(
        self, api: KubeApi, objects: AppliedObjects, surroundings: SupportingObjects, settings: OperatorSettings
    ) -> None:
        self._api = api
        self._objects = objects
        self._surroundings = surroundings
        self._settings = settings
        self._is_away = False

    def forget(self) -> None:
        """Make the next reconciliation check for an undeclared lag exporter, which another operator may have left."""
        self._is_away = False

    async def reconcile(self, cluster: Cluster) -> Refusal | None:
        """Apply or delete the objects of the lag exporter; return why the first refused object was refused, or None.

        Raises KubeUnreachable and KubeRefused.
        """
        if cluster.spec.lag_exporter is None:
            await self._remove(cluster)
            return None
        refused, self._is_away = None, False
        apis, settings = await self._surroundings.apis(), self._settings
        for each in lag_exporter_objects(cluster, settings.operator_image, apis, settings.neighbours):
            try:
                await self._objects.apply(cluster, each)
            except ObjectRefused as error:
                refused = refused or error.refusal
        return refused

    async def _remove(self, cluster: Cluster) -> None:
        if self._is_away:
            return
        namespace, name = cluster.metadata.namespace or "default", lag_exporter_name(cluster.metadata.name)
        for kind in KINDS:
            found = await self._api.get(kind, namespace, name)
            if found is not None and is_owned(cluster, found):
                await self._objects.remove(kind, found)
        self._is_away = True
