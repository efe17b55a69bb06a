"""Applies the lag exporter and the CronJobs that a Cluster declares, and deletes those that it no longer declares."""

from typing import Final

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.manifests.lag_exporter import lag_exporter_objects
from barnabas_operator.manifests.maintenance_schedule import leftover_schedules, schedules, starter_access
from barnabas_operator.planning.maintenance.run_checks import entry_problems
from barnabas_operator.planning.object_names import CLUSTER_LABEL, lag_exporter_name, schedule_name, starter_name
from barnabas_operator.planning.refusal import INVALID_SPEC, Refusal
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects
from barnabas_operator.reconcile.brokers.supporting_objects import SupportingObjects
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.resources.cluster import Cluster

OF_EXPORTER: Final = ("Deployment", "PodMonitor", "Secret")
RIGHTS: Final = ("RoleBinding", "ServiceAccount")
"""The kinds of the objects that allow the pods of a Cluster's CronJobs to create MaintenanceJobs."""


class CompanionObjects:
    """The reconciler of one Cluster's lag exporter and maintenance schedules.

    It looks for leftover objects if the Cluster has changed, or `forget` was called.
    """

    def __init__(
        self, api: KubeApi, objects: AppliedObjects, surroundings: SupportingObjects, settings: OperatorSettings
    ) -> None:
        self._api = api
        self._objects = objects
        self._surroundings = surroundings
        self._settings = settings
        self._tidied: int | None = None

    def forget(self) -> None:
        """Make the next reconciliation look for objects that an earlier operator has left behind."""
        self._tidied = None

    async def reconcile(self, cluster: Cluster) -> Refusal | None:
        """Apply the objects; return the error of an invalid maintenance entry or a refused object, or None.

        The CronJob of an invalid entry is not changed. May raise KubeUnreachable and KubeRefused.
        """
        name, settings, wrong = cluster.metadata.name, self._settings, dict(entry_problems(cluster.spec.maintenance))
        bad = {schedule_name(name, entry) for entry in wrong}
        jobs = schedules(cluster, settings.operator_image, settings.pull_secrets)
        cron_jobs = (*starter_access(cluster), *jobs)
        apis = await self._surroundings.apis()
        exporter = lag_exporter_objects(cluster, settings.operator_image, apis, settings.neighbours)
        wanted = (*(each for each in cron_jobs if each["metadata"]["name"] not in bad), *exporter)
        refused = await self._objects.apply_all(cluster, wanted)
        await self._tidy(cluster)
        return Refusal(INVALID_SPEC, next(iter(wrong.values()))) if wrong else refused

    async def _tidy(self, cluster: Cluster) -> None:
        """Delete what is no longer declared; do nothing if the spec is unchanged since the last call.

        Kubernetes also deletes the Jobs of deleted CronJobs, even running ones. If `spec.maintenance` is empty, the
        ServiceAccount and RoleBinding of the CronJobs' pods are also deleted.
        """
        if self._tidied is not None and self._tidied == cluster.metadata.generation:
            return
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        for each in leftover_schedules(cluster, await self._api.listing("CronJob", namespace, {CLUSTER_LABEL: name})):
            await self._objects.remove("CronJob", each)
        if not cluster.spec.maintenance:
            await self._objects.remove_named(cluster, RIGHTS, starter_name(name))
        if cluster.spec.lag_exporter is None:
            await self._objects.remove_named(cluster, OF_EXPORTER, lag_exporter_name(name))
        self._tidied = cluster.metadata.generation
