"""Reconciles the MaintenanceJobs of a Cluster in a background worker: starts and follows runs, and reports their end.

Drivers report progress every few seconds, which must not cause reconciliations of the brokers.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.kube.gather import gather_runs
from barnabas_operator.leader_election import NotLeading
from barnabas_operator.manifests.maintenance_run import (
    as_the_cluster_says,
    driver_job,
    driver_service,
    run_access,
    run_client,
    run_policy,
    spark_application,
)
from barnabas_operator.planning.cluster_state import SKEW, named_run
from barnabas_operator.planning.conditions import (
    CLUSTER_NOT_READY,
    INTERNAL_ERROR,
    INVALID_SPEC,
    KUBERNETES_ERROR,
    RESOURCE_CONFLICT,
    Refusal,
    seconds_between,
    time_text,
    with_problem,
)
from barnabas_operator.planning.maintenance.observed_run import (
    BEGINS_AGAIN,
    MARK,
    NOTHING_SEEN,
    START,
    STARTED,
    ObservedRun,
    Run,
    RunState,
    has_begun,
    mark_of,
    marked,
    may_begin_again,
    run_of,
    start_of,
    started_object,
    taken,
    waiting_turns,
)
from barnabas_operator.planning.maintenance.run_checks import NO_SPARK_OPERATOR, SPARK_OPERATOR_MISSING, run_problems
from barnabas_operator.planning.maintenance.run_status import (
    DELETING,
    beginning_again,
    ended,
    ended_at,
    is_worth_a_write,
    pending,
    recalled,
    refused,
    running,
)
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.reconcile.reconcile_parts import Pace, PacedStatuses, Poller, refusal_of
from barnabas_operator.reconcile.worker_environment import (
    Bodies,
    OperatorSettings,
    ParsedResources,
    ReconcilerEnvironment,
    StatusWriter,
    has_finalizer_as,
    in_turns,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB, MaintenanceJob, RunTemplate

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
        made = make(run, name, access, image)
        return {**made, "metadata": {**made["metadata"], "annotations": {START: start_of(made)}}}

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


AT_ONCE_MAX: Final = 16
PACE: Final = Pace(is_worth_a_write, every_s=10.0)
NOT_YET: Final = "the Cluster has not been reconciled yet"


class RunPoller(Poller):
    """The reconciler of the MaintenanceJobs of one Cluster, which a background worker calls."""

    kind = MAINTENANCE_JOB.name

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        worker_environment = environment.worker_environment
        self._key: Final = environment.key
        self._settings: Final = worker_environment.settings
        self._clock: Final = worker_environment.clock
        self._api: Final = worker_environment.api
        self._statuses: Final = StatusWriter(worker_environment.api, worker_environment.clock)
        self._work: Final = RunWork(worker_environment.api, worker_environment.settings, worker_environment.clock)
        self._read: Final = ParsedResources(MaintenanceJob)
        self._paced: Final = PacedStatuses[MaintenanceJob](self._statuses, worker_environment.clock.monotonic_s, PACE)
        self._cluster: Cluster | None = None
        self._why_not = NOT_YET

    @property
    def acted_at(self) -> float:
        """Return the monotonic time at which a status or finalizer was last written."""
        return self._statuses.wrote_at

    def pause_s(self, took_s: float, *, is_busy: bool) -> float:
        """Return the seconds to wait before the next call of `poll`: fewer while `is_busy`, but at least `took_s`.

        `took_s` is the duration of the last call.
        """
        return max(took_s, self._settings.run_poll_s if is_busy else self._settings.drift_s)

    async def poll(self, cluster: Cluster | None, why_resting: str, bodies: Bodies) -> bool:
        """Reconcile all runs once; return True if the next call must come soon.

        While the Cluster is unknown or its brokers cannot be asked, no run begins, but active runs continue.
        """
        self._cluster, self._why_not = cluster, why_resting or ("" if cluster is not None else NOT_YET)
        self._statuses.begin()
        self._paced.keep(bodies)
        runs = await self._observed(await self._readable(bodies), bodies)
        turns = waiting_turns(run.declared for run in runs if run.may_use_its_topics)
        await in_turns(
            lambda run: self._reconcile(run, turns.get(run.declared.metadata.name), bodies), runs, AT_ONCE_MAX
        )
        self._statuses.check()
        return any(
            run.state is not RunState.OVER or run.declared.spec.ttl_seconds_after_finished is not None for run in runs
        )

    async def _readable(self, bodies: Bodies) -> Sequence[MaintenanceJob]:
        """Return the valid runs, and the invalid runs that have begun or ended.

        The error of any other invalid run is written into the status of that run.
        """
        runs, unread = self._read.all(bodies.values())
        runs += [run for run, _ in unread if _is_past_its_spec(run)]
        for run, why in unread:
            if not _is_past_its_spec(run):
                now = self._statuses.newest(run, bodies[run.metadata.name])
                await self._write(now, with_problem(now, Refusal(INVALID_SPEC, why), self._now()), bodies)
        return [self._statuses.newest(run, bodies[run.metadata.name]) for run in runs]

    async def _observed(self, declared: Sequence[MaintenanceJob], bodies: Bodies) -> list[Run]:
        """Return the runs as the API server has them now; it is not asked about runs that have long been over."""
        asked = [
            run
            for run in declared
            if not run.has_finished or _is_deleted(run) or has_finalizer_as(bodies[run.metadata.name], wanted=True)
        ]
        found: Mapping[str, ObservedRun] = {}
        if asked:
            found = await gather_runs(self._api, self._key.namespace, self._key.name, asked, self._now())
        return [run_of(run, found.get(run.metadata.name, NOTHING_SEEN)) for run in declared]

    async def _reconcile(self, run: Run, turn: Refusal | None, bodies: Bodies) -> None:
        """Take the next step of one run; `turn` says which earlier run it waits for, on the same topic for example."""
        match run.state:
            case RunState.ENDING:
                await self._end(run, bodies)
            case RunState.LINGERING | RunState.OVER:
                await self._clear(run, bodies)
            case _:
                await self._step(run, turn, bodies)

    async def _step(self, run: Run, turn: Refusal | None, bodies: Bodies) -> None:
        before, name = run.declared, self._key.name
        why_not = Refusal(CLUSTER_NOT_READY, self._why_not) if self._why_not else turn
        if not self._why_not and run.state is not RunState.INVALID:
            # The run may begin, and a MaintenanceJob must have its finalizer before its run begins.
            is_wanted = has_begun(before) or turn is None
            if not await self._statuses.with_finalizers([before], bodies, lambda _: is_wanted):
                return
        try:
            after = await self._work.step(run, self._cluster, name, why_not)
        except (NotLeading, KubeUnreachable):
            raise
        except Exception as error:  # An error in one run must not stop the other runs.
            after = self._failed(before, error)
        await self._write(before, after, bodies)

    def _failed(self, run: MaintenanceJob, error: Exception) -> MaintenanceJob:
        """Return the run with the error in its status; a run whose objects are invalid has failed for good."""
        name, now, why = self._key.name, self._now(), _reason(error)
        if why.reason == INTERNAL_ERROR:
            log.warning("%s/%s: %s", run.metadata.namespace, run.metadata.name, error, exc_info=error)
        if has_begun(run):
            return with_problem(run, why, now)
        is_final = isinstance(error, KubeRefused) and error.is_about_the_object
        return refused(run, name, why.message, now) if is_final else pending(run, name, why, now)

    async def _end(self, run: Run, bodies: Bodies) -> None:
        """End the pods of a deleted run; remove the resource's finalizer if no pod is left, or else report the pods."""
        before, observed = run.declared, run.observed
        try:
            if await self._work.end(run):
                await self._statuses.release(bodies[before.metadata.name])
                return
            why = Refusal(
                DELETING, f"waiting for the pods of the run to end; pods that still run: {observed.live_pods}"
            )
            why = Refusal(KUBERNETES_ERROR, observed.unknown) if observed.unknown else why
        except KubeRefused as error:
            why = Refusal(KUBERNETES_ERROR, error.message)
        await self._write(before, with_problem(before, why, self._now()), bodies)

    async def _clear(self, run: Run, bodies: Bodies) -> None:
        """Delete what would start more drivers of a finished run, and the run itself when its time has come.

        If the API server refuses, only log the error. The finalizer is removed when no pod is left.
        """
        declared, job = run.declared, run.observed.job
        if job is not None and job.starts_more:
            await _tried(declared, "stopped", self._work.end(run))
        if not self._may_be_carried_out(declared):
            await _tried(declared, "deleted", self._work.expire(declared))
        if run.state is RunState.OVER:
            await self._statuses.with_finalizers([declared], bodies, lambda _: False)

    def _may_be_carried_out(self, run: MaintenanceJob) -> bool:
        """True if the rebalance that this run has planned may still be carried out."""
        return run.spec.job == SKEW and (self._cluster is None or named_run(self._cluster) == run.metadata.name)

    async def _write(self, before: MaintenanceJob, after: MaintenanceJob, bodies: Bodies) -> None:
        await self._paced.write([(after, before.status)], bodies)

    def _now(self) -> str:
        return time_text(self._clock.now_ms())


def _reason(error: Exception) -> Refusal:
    if isinstance(error, ObjectRefused):
        return error.refusal
    return Refusal(KUBERNETES_ERROR, error.message) if isinstance(error, KubeRefused) else refusal_of(error)


def _is_past_its_spec(run: MaintenanceJob) -> bool:
    """True if the run has begun or finished, so that its spec no longer matters."""
    return has_begun(run) or run.has_finished


def _is_deleted(run: MaintenanceJob) -> bool:
    return run.metadata.deletion_timestamp is not None


async def _tried(run: MaintenanceJob, what: str, work: Awaitable[object]) -> None:
    try:
        await work
    except KubeRefused as error:
        log.warning("%s/%s: the run cannot be %s: %s", run.metadata.namespace, run.metadata.name, what, error)
