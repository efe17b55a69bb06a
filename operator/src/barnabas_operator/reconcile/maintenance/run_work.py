"""Carries out the next step of a maintenance run."""

import asyncio
import logging
import math
from typing import Final

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.manifests.maintenance_run import (
    as_the_cluster_says,
    driver_job,
    driver_service,
    run_access,
    run_client,
    run_policy,
    spark_application,
)
from barnabas_operator.planning.maintenance.observed_run import start_of
from barnabas_operator.planning.maintenance.run_checks import NO_SPARK_OPERATOR, SPARK_OPERATOR_MISSING, run_problems
from barnabas_operator.planning.maintenance.run_state import (
    BEGINS_AGAIN,
    MARK,
    STARTED,
    Run,
    RunState,
    mark_of,
    marked,
    may_begin_again,
    started_object,
    taken,
)
from barnabas_operator.planning.maintenance.run_status import (
    beginning_again,
    ended,
    ended_at,
    pending,
    recalled,
    refused,
    running,
)
from barnabas_operator.planning.refusal import KUBERNETES_ERROR, RESOURCE_CONFLICT, Refusal
from barnabas_operator.planning.time_text import seconds_between, time_text
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.reconcile.operator_settings import OperatorSettings
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.maintenance_run import RunTemplate

log = logging.getLogger(__name__)


RIGHTS_EVERY_S: Final = 5.0
"""The time after which the ServiceAccount and RoleBinding of runs are applied again, even if unchanged."""
GONE: Final = Refusal(RESOURCE_CONFLICT, "the MaintenanceJob has been deleted")


class RunWork:
    """The creation, start and deletion of the Kubernetes objects of one Cluster's maintenance runs.

    Every method may raise KubeUnreachable, KubeRefused and ObjectRefused.
    """

    def __init__(self, api: KubeApi, settings: OperatorSettings, clock: Clock) -> None:
        self._api: Final = api
        self._settings: Final = settings
        self._clock: Final = clock
        self._objects: Final = AppliedObjects(api)
        self._rights_turn: Final = asyncio.Lock()
        self._rights_s = -math.inf

    async def step(self, run: Run, cluster: Cluster | None, name: str, why_not: Refusal | None) -> MaintenanceJob:
        """Do what the run needs next, such as to create or start its Job; return the run with its new status.

        `name` is the name of the Cluster. `cluster` is None if the Cluster is unknown. `why_not` says why the run may
        not begin, and is None if it may.
        """
        declared, observed, state = run
        now = time_text(self._clock.now_ms())
        match state:
            case RunState.INVALID:
                return refused(declared, name, "; ".join(run_problems(declared.spec)), now)
            case RunState.UNKNOWN:
                raise ObjectRefused(Refusal(KUBERNETES_ERROR, observed.unknown))
            case RunState.TAKEN:
                return pending(declared, name, taken(*started_object(declared)), now)
            case RunState.LOST:
                return recalled(declared, name, mark_of(declared) or STARTED, now)
            case RunState.ENDED:
                after = ended(declared, name, observed, now)
                await self._mark(declared, (after.status and after.status.phase) or STARTED)
                return after
            case RunState.NEW | RunState.CREATED if why_not is not None:
                return pending(declared, name, why_not, now)
            case RunState.NEW | RunState.CREATED | RunState.RUNNING | RunState.REPLACED:
                begins_again = await self._advance(run, cluster, may_begin=why_not is None)
                return (beginning_again if begins_again else running)(declared, name, observed, now)
            case RunState.ENDING | RunState.LINGERING | RunState.OVER:
                raise AssertionError(f"a run in the state {state.name} takes no step")

    async def _advance(self, run: Run, cluster: Cluster | None, *, may_begin: bool) -> bool:
        """Begin the run, or see to it that a run that has begun can go on.

        Return True if its Job is being made again, with another address, other credentials or another image.
        """
        if run.state is RunState.REPLACED:
            return True
        if run.state is RunState.NEW:
            assert cluster is not None, "no run may begin before the operator has found the Cluster"
            await self._begin(run.declared, cluster)
            return False
        if may_begin and self._is_outdated(run, cluster):
            await self._replace(run)
            return True
        await self._mark(run.declared, STARTED)
        if run.state is RunState.CREATED:
            await self._resume(run.declared)
        elif cluster is not None and not run.observed.live_pods:
            await self._give_rights(cluster)  # Without its ServiceAccount the driver's pod cannot be created.
        return False

    def _is_outdated(self, run: Run, cluster: Cluster | None) -> bool:
        """True if the run may begin again, and its drivers would start with an old address or image, for example."""
        if cluster is None or run.observed.job is None or not may_begin_again(run):
            return False
        declared = as_the_cluster_says(run.declared, cluster, self._settings.pull_secrets)
        return start_of(self._starter(declared, cluster)) != run.observed.job.start

    async def _replace(self, run: Run) -> None:
        """Mark the run, so that its missing Job does not count as lost, and delete the Job."""
        log.info("%s: %s begins again", run.declared.metadata.namespace, run.declared.metadata.name)
        await self._mark(run.declared, BEGINS_AGAIN)
        await self.end(run)

    def _starter(self, run: MaintenanceJob, cluster: Cluster) -> Json:
        """Return the Job or the SparkApplication that starts the drivers of a run."""
        name, image = cluster.metadata.name, self._settings.jobs_image
        access = run_client(run, cluster)
        if self._settings.bootstrap:
            access = access._replace(bootstrap=self._settings.bootstrap)
        make = spark_application if run.spec.backend == "Kubeflow" else driver_job
        return make(run, name, access, image)

    async def _begin(self, run: MaintenanceJob, cluster: Cluster) -> None:
        """Begin the run: check and create its objects, mark the run as started, and start its suspended Job."""
        run = as_the_cluster_says(run, cluster, self._settings.pull_secrets)
        name, starter = cluster.metadata.name, self._starter(run, cluster)
        if run.spec.backend == "Kubeflow":
            await self._check_application(starter)
        elif run.spec.template != RunTemplate():
            # The dry run refuses unknown fields in the template, which the creation below would silently drop.
            await self._api.dry_run(starter)
        await self._give_rights(cluster)
        await self._create(run, run_policy(run, name))
        await self._create(run, driver_service(run, name))
        await self._create(run, starter)
        await self._mark(run, STARTED)
        await self._resume(run)

    async def _check_application(self, item: Json) -> None:
        """Check by a dry run that the installed CRD of Kubeflow has all fields, such as `suspend`.

        Raises ObjectRefused if the CRD is not installed, and KubeRefused if a field is unknown.
        """
        if not await self._api.serves(item["kind"]):
            raise ObjectRefused(Refusal(NO_SPARK_OPERATOR, SPARK_OPERATOR_MISSING))
        await self._api.dry_run(item)

    async def _give_rights(self, cluster: Cluster) -> None:
        """Apply the ServiceAccount and RoleBinding of runs if they have changed, or after RIGHTS_EVERY_S."""
        async with self._rights_turn:
            if self._clock.monotonic_s() - self._rights_s >= RIGHTS_EVERY_S:
                self._objects.forget()
                self._rights_s = self._clock.monotonic_s()
            for each in run_access(cluster):
                await self._objects.apply(cluster, each)

    async def _create(self, run: MaintenanceJob, item: Json) -> None:
        """Create an object of the run. Raises ObjectRefused if an object of this name belongs to another owner."""
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
        if mark_of(run) != mark:
            # With the uid, the API server refuses the patch if the name belongs to a new run.
            change = {"metadata": {"uid": run.metadata.uid, "annotations": {MARK: marked(run, mark)}}}
            if await self._api.patch(MAINTENANCE_JOB.name, run.metadata.namespace, run.metadata.name, change) is None:
                raise ObjectRefused(GONE)

    async def _resume(self, run: MaintenanceJob) -> None:
        log.info("%s: %s begins", run.metadata.namespace, run.metadata.name)
        kind, name = started_object(run)
        await self._api.patch(kind, run.metadata.namespace, name, {"spec": {"suspend": False}})

    async def end(self, run: Run) -> bool:
        """Delete the Job or SparkApplication of a run; return True if the object and all its pods are gone."""
        job, meta = run.observed.job, run.declared.metadata
        is_own = job is not None and job.owner == meta.uid
        if job is not None and is_own and not job.is_ending:
            gone = {"preconditions": {"uid": job.uid}, "propagationPolicy": "Background"}
            kind, name = started_object(run.declared)
            await self._api.delete(kind, meta.namespace, name, **gone)
        return not (is_own or run.observed.live_pods or run.observed.unknown)

    async def expire(self, run: MaintenanceJob) -> None:
        """Delete a run that ended at least `ttlSecondsAfterFinished` ago, if the run has this field."""
        kept_s, at = run.spec.ttl_seconds_after_finished, ended_at(run)
        if kept_s is None or not at:
            return
        if seconds_between(at, time_text(self._clock.now_ms())) >= kept_s:
            uid = {"preconditions": {"uid": run.metadata.uid}}
            await self._api.delete(MAINTENANCE_JOB.name, run.metadata.namespace, run.metadata.name, **uid)
