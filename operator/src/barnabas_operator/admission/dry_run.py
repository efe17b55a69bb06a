"""Dry-runs the objects of a Cluster or MaintenanceJob on the API server, before the resource is stored.

A MaintenanceJob is refused if its backend is Kubeflow and Kubeflow's operator is not installed. If the MaintenanceJob
has a template, its Job is dry-run. The entries of a Cluster's `spec.maintenance` are checked like MaintenanceJobs. The
Cluster's StatefulSet, CronJobs and objects with a template are dry-run, too, and the storage classes must allow the
declared volume claims.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.kube.claims import claims_of, storage_classes
from barnabas_operator.manifests.cluster_objects import templated_objects
from barnabas_operator.manifests.kube_object import ClientAccess
from barnabas_operator.manifests.maintenance_run import driver_job
from barnabas_operator.manifests.maintenance_schedule import schedules
from barnabas_operator.manifests.stateful_set import stateful_set
from barnabas_operator.planning.admission.field_translation import JOB, in_declared_fields
from barnabas_operator.planning.brokers.claims import (
    claims_to_grow,
    new_disks,
    refuse_disks,
    refuse_growth,
    refuse_missing_class,
)
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.planning.maintenance.run_checks import SPARK_OPERATOR_MISSING
from barnabas_operator.planning.object_names import schedule_name
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_entry import MaintenanceEntry
from barnabas_operator.resources.maintenance_job import MaintenanceJob, MaintenanceJobSpec
from barnabas_operator.resources.maintenance_run import RunSpec, RunTemplate

log = logging.getLogger(__name__)

ANSWER_S_MAX: Final = 2.0
ANY: Final = "any"
"""A placeholder for fields that do not affect the result of a dry run."""
OBJECTS_MAX: Final = 24
"""The largest number of objects that are dry-run, because a thousand Services would take too long."""

DryRunCall = Callable[[Cluster | MaintenanceJob, Cluster | None], Awaitable[str | None]]
"""A function that dry-runs the objects of a Cluster or MaintenanceJob; it returns the problem found, or None.

The second argument is the stored Cluster, or None if the Cluster is new.
"""


class DryRun:
    """The dry runs of objects by the API server, which store nothing.

    If the API server does not answer in time, or denies access, no problem is reported.
    """

    def __init__(self, api: KubeApi, image: str, clock: LoopClock) -> None:
        self._api = api
        self._clock = clock
        self._image = image

    async def __call__(self, resource: Cluster | MaintenanceJob, before: Cluster | None = None) -> str | None:
        """Dry-run the Kubernetes objects of a resource; return the problem found, or None."""
        runs = [resource.spec] if isinstance(resource, MaintenanceJob) else resource.spec.maintenance
        at = "spec" if isinstance(resource, MaintenanceJob) else "spec.maintenance"
        if any(run.backend == "Kubeflow" for run in runs) and await self._lacks_spark_operator():
            return f"{at}: {SPARK_OPERATOR_MISSING}"
        if isinstance(resource, MaintenanceJob):
            return await self._of_run(resource)
        of_cluster, of_runs = await asyncio.gather(self._of_cluster(resource, before), self._of_schedules(resource))
        return of_cluster or of_runs

    async def _of_run(self, run: MaintenanceJob) -> str | None:
        """Dry-run the Job of a MaintenanceJob that has a template; return the API server's error, or None.

        For the backend Kubeflow, which creates no Job, the dry run of a Job checks the same driver pod.
        """
        if run.spec.template == RunTemplate():
            return None
        try:
            async with self._clock.timeout(ANSWER_S_MAX):
                await self._api.dry_run(driver_job(run, run.spec.cluster or ANY, ClientAccess(ANY), ANY))
        except KubeRefused as error:
            return in_declared_fields(JOB, error.message) if error.is_about_the_object else None
        except (KubeUnreachable, TimeoutError) as error:
            log.warning(
                "%s/%s: the API server could not dry-run the Job: %s", run.metadata.namespace, run.metadata.name, error
            )
        return None

    async def _of_schedules(self, cluster: Cluster) -> str | None:
        """Dry-run a Job for each maintenance entry of the Cluster; return the first problem, or None."""
        entries = cluster.spec.maintenance
        said = await asyncio.gather(*(self._of_run(_run(cluster, each)) for each in entries))
        found = (f"spec.maintenance {each.name}: {why}" for each, why in zip(entries, said, strict=True) if why)
        return next(found, None)

    async def _lacks_spark_operator(self) -> bool:
        try:
            async with self._clock.timeout(ANSWER_S_MAX):
                return not await self._api.serves("SparkApplication")
        except (KubeUnreachable, KubeRefused, TimeoutError) as error:
            log.warning(
                "could not find out if the API server has the kind SparkApplication: %s", str(error) or "no answer"
            )
            return False

    async def _of_cluster(self, cluster: Cluster, before: Cluster | None) -> str | None:
        pods = stateful_set(cluster, ExternalAccess(), self._image, cluster.spec.brokers.replicas)
        others = [*templated_objects(cluster, self._image), *schedules(cluster, self._image)][:OBJECTS_MAX]
        requests = [
            self._disks(cluster, before),
            self._api.dry_run(pods),
            *(self._api.apply(each, is_dry_run=True) for each in others),
        ]
        try:
            async with self._clock.timeout(ANSWER_S_MAX):
                answers = await asyncio.gather(*requests, return_exceptions=True)
        except TimeoutError:
            answers = [TimeoutError("the API server did not answer in time")]
        if isinstance(answers[0], Refusal):
            return answers[0].message
        for each, answer in zip((pods, *others), answers[1:], strict=False):
            if isinstance(answer, KubeRefused) and answer.is_about_the_object:
                name = "" if each is pods else f"{each['kind']} {each['metadata']['name']}: "
                return name + in_declared_fields(each["kind"], answer.message)
        for answer in answers:
            _log_what_failed(cluster, answer)
        return None

    async def _disks(self, cluster: Cluster, before: Cluster | None) -> Refusal | None:
        """Return why brokers would lose disks with records, or cannot get the declared disks; None if all is well."""
        volumes = before.spec.storage.volumes if before is not None else ()
        claims = await claims_of(self._api, cluster)
        lost = refuse_disks(cluster, volumes, claims)
        if lost is not None or not (new_disks(cluster, claims) or claims_to_grow(cluster, claims)):
            return lost
        classes = await storage_classes(self._api, cluster)
        rigid = {name for name, each in classes.by_name.items() if not each.can_grow}
        return refuse_missing_class(cluster, claims, classes) or refuse_growth(cluster, claims, rigid)


def _run(cluster: Cluster, entry: MaintenanceEntry) -> MaintenanceJob:
    meta = replace(cluster.metadata, name=schedule_name(cluster.metadata.name, entry.name))
    of_run = {name: getattr(entry, name) for name in RunSpec.__struct_fields__}
    return MaintenanceJob(metadata=meta, spec=MaintenanceJobSpec(**of_run, cluster=cluster.metadata.name))


def _log_what_failed(cluster: Cluster, answer: object) -> None:
    """Log a timeout or KubeUnreachable, ignore KubeRefused, and raise any other exception."""
    meta = cluster.metadata
    if isinstance(answer, KubeUnreachable | TimeoutError):
        log.warning("%s/%s: the API server could not dry-run the objects: %s", meta.namespace, meta.name, answer)
    elif isinstance(answer, BaseException) and not isinstance(answer, KubeRefused):
        raise answer
