"""Applies the CronJobs that `spec.maintenance` declares, and deletes CronJobs that it no longer declares."""

from typing import Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.maintenance_schedule import leftover_schedules, schedules, starter_access
from barnabas_operator.planning.brokers.ownership import is_owned
from barnabas_operator.planning.maintenance.run_checks import entry_problems
from barnabas_operator.planning.object_names import CLUSTER_LABEL, schedule_name, starter_name
from barnabas_operator.planning.refusal import INVALID_SPEC, Refusal
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.resources.cluster import Cluster

RIGHTS: Final = ("RoleBinding", "ServiceAccount")
"""The kinds of the objects that allow the pods of a Cluster's CronJobs to create MaintenanceJobs."""


class ScheduleReconciler:
    """The reconciler of one Cluster's maintenance schedules.

    It looks for leftover objects if the Cluster has changed, or `forget` was called.
    """

    def __init__(self, api: KubeApi, objects: AppliedObjects, settings: OperatorSettings) -> None:
        self._api = api
        self._objects = objects
        self._settings = settings
        self._tidied: int | None = None

    def forget(self) -> None:
        """Make the next reconciliation look for objects that an earlier operator has left behind."""
        self._tidied = None

    async def reconcile(self, cluster: Cluster) -> Refusal | None:
        """Apply the CronJobs of `spec.maintenance`; return the error of an invalid entry or a refused object, or None.

        The CronJob of an invalid entry is not changed. May raise KubeUnreachable and KubeRefused.
        """
        name, wrong = cluster.metadata.name, dict(entry_problems(cluster.spec.maintenance))
        refused = Refusal(INVALID_SPEC, next(iter(wrong.values()))) if wrong else None
        bad = {schedule_name(name, entry) for entry in wrong}
        access = starter_access(cluster, self._settings.pull_secrets)
        for each in (*access, *schedules(cluster, self._settings.operator_image)):
            if each["metadata"]["name"] in bad:
                continue
            try:
                await self._objects.apply(cluster, each)
            except ObjectRefused as error:
                refused = refused or error.refusal
        await self._tidy(cluster)
        return refused

    async def _tidy(self, cluster: Cluster) -> None:
        """Delete CronJobs that are no longer declared; do nothing if the spec is unchanged since the last call.

        Kubernetes then also deletes the Jobs of the CronJobs, even running ones. If `spec.maintenance` is empty, the
        ServiceAccount and RoleBinding of the CronJobs' pods are also deleted.
        """
        if self._tidied is not None and self._tidied == cluster.metadata.generation:
            return
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        for each in leftover_schedules(cluster, await self._api.listing("CronJob", namespace, {CLUSTER_LABEL: name})):
            await self._objects.remove("CronJob", each)
        if not cluster.spec.maintenance:
            await self._remove_rights(cluster)
        self._tidied = cluster.metadata.generation

    async def _remove_rights(self, cluster: Cluster) -> None:
        """Delete the ServiceAccount and RoleBinding of the CronJobs' pods, which create MaintenanceJobs."""
        namespace, name = cluster.metadata.namespace or "default", starter_name(cluster.metadata.name)
        for kind in RIGHTS:
            found = await self._api.get(kind, namespace, name)
            if found is not None and is_owned(cluster, found):
                await self._objects.remove(kind, found)
