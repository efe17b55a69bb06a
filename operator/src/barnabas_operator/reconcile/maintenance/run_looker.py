"""Reconciles the MaintenanceJobs of a Cluster in a background worker: starts and follows runs, and reports their end.

Drivers report progress every few seconds, which must not cause reconciliations of the brokers.
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.kube.gather_runs import gather_runs
from barnabas_operator.leader_election.leadership import NotLeading
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.maintenance.observed_run import NOTHING_SEEN, ObservedRun
from barnabas_operator.planning.maintenance.run_state import Run, RunState, has_begun, run_of
from barnabas_operator.planning.maintenance.run_status import DELETING, is_worth_a_write, pending, refused
from barnabas_operator.planning.maintenance.run_turns import waiting_turns
from barnabas_operator.planning.rebalance_request import SKEW, named_run
from barnabas_operator.planning.refusal import (
    CLUSTER_NOT_READY,
    INTERNAL_ERROR,
    INVALID_SPEC,
    KUBERNETES_ERROR,
    Refusal,
)
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.brokers.applied_objects import ObjectRefused
from barnabas_operator.reconcile.in_turns import in_turns
from barnabas_operator.reconcile.kind_reconciler import Bodies, ReconcilerEnvironment
from barnabas_operator.reconcile.look_worker import Looker
from barnabas_operator.reconcile.maintenance.run_work import RunWork
from barnabas_operator.reconcile.paced_statuses import Pace, PacedStatuses
from barnabas_operator.reconcile.parsed_resources import ParsedResources
from barnabas_operator.reconcile.reconcile_parts import refusal_of
from barnabas_operator.reconcile.status_writer import StatusWriter, has_finalizer_as
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob

log = logging.getLogger(__name__)

AT_ONCE_MAX: Final = 16
PACE: Final = Pace(is_worth_a_write, every_s=10.0)
NOT_YET: Final = "the Cluster has not been reconciled yet"


class RunLooker(Looker):
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
        """Return the seconds to wait before the next call of `look`: fewer while `is_busy`, but at least `took_s`.

        `took_s` is the duration of the last call.
        """
        return max(took_s, self._settings.run_look_s if is_busy else self._settings.drift_s)

    async def look(self, cluster: Cluster | None, why_resting: str, bodies: Bodies) -> bool:
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
