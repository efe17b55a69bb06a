"""Carries out the next step of a run."""

import logging
from typing import Final, assert_never

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.manifests.maintenance_run import bootstrap_servers, driver_job, driver_service, run_access
from barnabas_operator.planning.maintenance.run_facts import RunFacts
from barnabas_operator.planning.maintenance.run_status import ended, pending, recalled, running
from barnabas_operator.planning.maintenance.run_step import (
    MARK,
    STARTED,
    End,
    MakeJob,
    MarkStarted,
    Recall,
    ResumeJob,
    Wait,
    Watch,
    next_step,
    taken,
)
from barnabas_operator.planning.object_names import driver_name
from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.planning.time_text import seconds_between, time_text
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob

log = logging.getLogger(__name__)


GONE: Final = Refusal(RESOURCE_CONFLICT, "the MaintenanceJob was deleted meanwhile")


class RunWork:
    """Every method may raise KubeUnreachable, KubeRefused and ObjectRefused."""

    def __init__(self, api: KubeApi, settings: OperatorSettings, clock: Clock) -> None:
        self._api: Final = api
        self._settings: Final = settings
        self._clock: Final = clock
        self._objects: Final = AppliedObjects(api)

    async def step(
        self, run: MaintenanceJob, facts: RunFacts, cluster: Cluster | None, name: str, why_not: Refusal | None
    ) -> MaintenanceJob:
        """The run with its new status. `cluster` is None as long as it is not known; `name` is what it is called."""
        step, now = next_step(run, facts, why_not), time_text(self._clock.now_ms())
        match step:
            case Wait(why):
                return pending(run, name, why, now)
            case MakeJob():
                assert cluster is not None, "why_not says so of a Cluster that is not known"
                await self._begin(run, cluster)
                return running(run, name, facts, now)
            case MarkStarted():
                await self._mark(run, STARTED)
                await self._resume(run)
                return running(run, name, facts, now)
            case ResumeJob():
                await self._resume(run)
                return running(run, name, facts, now)
            case Watch():
                return running(run, name, facts, now)
            case End():
                told = ended(run, name, facts, now)
                await self._mark(run, (told.status and told.status.phase) or STARTED)
                return told
            case Recall(mark):
                return recalled(run, name, mark, now)
        assert_never(step)

    async def _begin(self, run: MaintenanceJob, cluster: Cluster) -> None:
        """Three writes, in this order (`planning/maintenance/run_step.py`); each look goes on where one ended."""
        name, image = cluster.metadata.name, self._settings.jobs_image
        self._objects.forget()
        for each in run_access(cluster):
            await self._objects.apply(cluster, each)
        await self._create(run, driver_service(run, name))
        bootstrap = self._settings.bootstrap or bootstrap_servers(cluster)
        await self._create(run, driver_job(run, name, bootstrap, image))
        await self._mark(run, STARTED)
        await self._resume(run)

    async def _create(self, run: MaintenanceJob, item: Json) -> None:
        """One that is there already is the run's own, or nothing is done. Raises ObjectRefused."""
        kind, meta = item["kind"], item["metadata"]
        try:
            await self._api.create(item)
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise
            found = await self._api.get(kind, meta["namespace"], meta["name"])
            owners = found["metadata"].get("ownerReferences", ()) if found is not None else ()
            if run.metadata.uid not in (each["uid"] for each in owners):
                raise ObjectRefused(taken(kind, meta["name"])) from error

    async def _mark(self, run: MaintenanceJob, mark: str) -> None:
        if run.metadata.annotations.get(MARK) != mark:
            # Another one may have its name by now: with the uid of this one the API server refuses that.
            change = {"metadata": {"uid": run.metadata.uid, "annotations": {MARK: mark}}}
            if await self._api.patch(MAINTENANCE_JOB.name, run.metadata.namespace, run.metadata.name, change) is None:
                raise ObjectRefused(GONE)

    async def _resume(self, run: MaintenanceJob) -> None:
        log.info("%s: %s begins", run.metadata.namespace, run.metadata.name)
        name = driver_name(run.metadata.name)
        await self._api.patch("Job", run.metadata.namespace, name, {"spec": {"suspend": False}})

    async def end(self, run: MaintenanceJob, facts: RunFacts) -> bool:
        """Ends what is under way of a run that is deleted; whether nothing is left of it."""
        job = facts.job
        if job is not None and job.owner == run.metadata.uid and not job.is_ending:
            gone = {"preconditions": {"uid": job.uid}, "propagationPolicy": "Background"}
            await self._api.delete("Job", run.metadata.namespace, driver_name(run.metadata.name), **gone)
        return not facts.live_pods

    async def expire(self, run: MaintenanceJob) -> None:
        """Deletes one that has ended long enough ago, where it says so."""
        kept_s, status = run.spec.ttl_seconds_after_finished, run.status
        if kept_s is None or status is None or status.completion_time is None:
            return
        if seconds_between(status.completion_time, time_text(self._clock.now_ms())) >= kept_s:
            uid = {"preconditions": {"uid": run.metadata.uid}}
            await self._api.delete(MAINTENANCE_JOB.name, run.metadata.namespace, run.metadata.name, **uid)
