"""Reconciles the MaintenanceJobs of a Cluster in a background worker: starts and follows runs, and reports their end.

Drivers report progress every few seconds, which must not cause reconciliations of the brokers.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.kube.gather_runs import gather_runs
from barnabas_operator.leader_election.leadership import NotLeading
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.maintenance.observed_run import NOTHING_SEEN, ObservedRun
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.planning.maintenance.run_status import DELETING, pending, refused
from barnabas_operator.planning.maintenance.run_step import has_begun
from barnabas_operator.planning.maintenance.run_turns import waiting_turns
from barnabas_operator.planning.maintenance.spark_application import goes_on
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
from barnabas_operator.reconcile.maintenance.run_statuses import RunStatuses
from barnabas_operator.reconcile.maintenance.run_work import RunWork
from barnabas_operator.reconcile.parsed_resources import ParsedResources
from barnabas_operator.reconcile.reconcile_parts import refusal_of
from barnabas_operator.reconcile.status_writer import StatusWriter, has_finalizer_as
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob

log = logging.getLogger(__name__)

ObservedRuns = Mapping[str, ObservedRun]
"""The observed state of each MaintenanceJob, by the name of the MaintenanceJob."""
AT_ONCE_MAX: Final = 16
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
        self._run_statuses: Final = RunStatuses(
            self._statuses, worker_environment.clock.monotonic_s, self._read.status_of
        )
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

    async def give_back(self, body: Json) -> None:
        """Do nothing, because the operator makes no temporary changes for a MaintenanceJob."""

    def look_failed(self) -> None:
        """Do nothing after a failed reconciliation, because the next reconciliation reads all runs again."""

    def close(self) -> None:
        """Do nothing, because this class holds no connections; active runs continue."""

    async def look(self, cluster: Cluster | None, why_resting: str, bodies: Bodies) -> bool:
        """Reconcile all runs once; return True if the next call must come soon.

        While the Cluster is unknown or its brokers cannot be asked, no run begins, but active runs continue.
        """
        self._cluster, self._why_not = cluster, why_resting or ("" if cluster is not None else NOT_YET)
        self._statuses.begin()
        runs = await self._readable(bodies)
        ending = [run for run in runs if _goes(run)]
        done = [run for run in runs if run.has_finished and not _goes(run)]
        active = [run for run in runs if not (run.has_finished or _goes(run))]
        held = [run for run in done if has_finalizer_as(bodies[run.metadata.name], wanted=True)]
        observed = await self._gather([*ending, *active, *held])
        await in_turns(lambda run: self._end(run, _of(run, observed), bodies), ending, AT_ONCE_MAX)
        await in_turns(self._expire, done, AT_ONCE_MAX)
        stopped = [run for run in held if goes_on(run, _of(run, observed))]
        await in_turns(lambda run: self._stop(run, _of(run, observed)), stopped, AT_ONCE_MAX)
        lingering = [run for run in done if _may_do_something(_of(run, observed)) or run in stopped]
        over = [run for run in done if run not in lingering]
        await self._statuses.with_finalizers(over, bodies, lambda _: False)
        await self._bring(active, [*(run for run in ending if has_begun(run)), *lingering], observed, bodies)
        self._statuses.check()
        is_busy = bool(ending or active or lingering)
        return is_busy or any(run.spec.ttl_seconds_after_finished is not None for run in done)

    async def _gather(self, asked: Collection[MaintenanceJob]) -> ObservedRuns:
        return await gather_runs(self._api, self._key.namespace, self._key.name, asked) if asked else {}

    async def _readable(self, bodies: Bodies) -> Sequence[MaintenanceJob]:
        """Return the valid runs, and the invalid runs that have begun or ended.

        The error of any other invalid run is written into the status of that run.
        """
        runs, unread = self._read.all(bodies.values())
        runs += [run for run, _ in unread if _is_past_its_spec(run)]
        invalid = [(run, why) for run, why in unread if not _is_past_its_spec(run)]
        now = self._now()
        await self._write((with_problem(run, Refusal(INVALID_SPEC, why), now) for run, why in invalid), bodies)
        return [self._statuses.newest(run, bodies[run.metadata.name]) for run in runs]

    async def _bring(
        self,
        declared: Sequence[MaintenanceJob],
        not_gone: Sequence[MaintenanceJob],
        observed: ObservedRuns,
        bodies: Bodies,
    ) -> None:
        """Start or observe the runs in `declared`. A run waits for earlier runs on the same subject, such as a topic.

        Runs also wait for the runs in `not_gone`, which are finished or being deleted, but may still have pods.
        """
        wrong = {run.metadata.name: "; ".join(run_problems(run.spec)) for run in declared if not has_begun(run)}
        cluster, now = self._key.name, self._now()
        bad = [run for run in declared if wrong.get(run.metadata.name)]
        good = [run for run in declared if not wrong.get(run.metadata.name)]
        await self._write((refused(run, cluster, wrong[run.metadata.name], now) for run in bad), bodies)
        turns = waiting_turns([*good, *not_gone])
        if not self._why_not:  # Runs may begin, and a MaintenanceJob must have its finalizer before its run begins.
            good = await self._statuses.with_finalizers(good, bodies, lambda run: _begins(run, turns))

        async def step(run: MaintenanceJob) -> None:
            await self._step(run, _of(run, observed), turns.get(run.metadata.name), bodies)

        await in_turns(step, good, AT_ONCE_MAX)

    async def _step(self, run: MaintenanceJob, observed: ObservedRun, turn: Refusal | None, bodies: Bodies) -> None:
        name = self._key.name
        why_not = Refusal(CLUSTER_NOT_READY, self._why_not) if self._why_not else turn
        try:
            after = await self._work.step(run, observed, self._cluster, name, why_not)
        except (NotLeading, KubeUnreachable):
            raise
        except Exception as error:  # An error in one run must not stop the other runs.
            after = self._failed(run, error)
        await self._write([after], bodies)

    def _failed(self, run: MaintenanceJob, error: Exception) -> MaintenanceJob:
        """Return the run with the error in its status; a run whose objects are invalid has failed for good."""
        name, now, why = self._key.name, self._now(), _reason(error)
        if why.reason == INTERNAL_ERROR:
            log.warning("%s/%s: %s", run.metadata.namespace, run.metadata.name, error, exc_info=error)
        if has_begun(run):
            return with_problem(run, why, now)
        is_final = isinstance(error, KubeRefused) and error.is_about_the_object
        return refused(run, name, why.message, now) if is_final else pending(run, name, why, now)

    async def _end(self, run: MaintenanceJob, observed: ObservedRun, bodies: Bodies) -> None:
        """End the pods of a deleted run; remove the resource's finalizer if no pod is left, or else report the pods."""
        try:
            is_over = await self._work.end(run, observed)
            why = Refusal(
                DELETING, f"waiting for the pods of the run to end; pods that still run: {observed.live_pods}"
            )
            why = Refusal(KUBERNETES_ERROR, observed.unknown) if observed.unknown else why
        except KubeRefused as error:
            is_over, why = False, Refusal(KUBERNETES_ERROR, error.message)
        if is_over:
            await self._statuses.release(bodies[run.metadata.name])
        else:
            await self._write([with_problem(run, why, self._now())], bodies)

    async def _stop(self, run: MaintenanceJob, observed: ObservedRun) -> None:
        """Delete the SparkApplication of a finished run, because Kubeflow would start another driver.

        If the API server refuses, only log the error.
        """
        try:
            await self._work.end(run, observed)
        except KubeRefused as error:
            log.warning("%s/%s: the run cannot be stopped: %s", run.metadata.namespace, run.metadata.name, error)

    async def _expire(self, run: MaintenanceJob) -> None:
        """Delete a finished run after `ttlSecondsAfterFinished`, unless its rebalance plan may still be carried out."""
        if self._may_be_carried_out(run):
            return
        try:
            await self._work.expire(run)
        except KubeRefused as error:
            log.warning("%s/%s: the run cannot be deleted: %s", run.metadata.namespace, run.metadata.name, error)

    def _may_be_carried_out(self, run: MaintenanceJob) -> bool:
        """True if the rebalance that this run has planned may still be carried out."""
        return run.spec.job == SKEW and (self._cluster is None or named_run(self._cluster) == run.metadata.name)

    async def _write(self, runs: Iterable[MaintenanceJob], bodies: Bodies) -> None:
        await self._run_statuses.write(runs, bodies)

    def _now(self) -> str:
        return time_text(self._clock.now_ms())


def _reason(error: Exception) -> Refusal:
    if isinstance(error, ObjectRefused):
        return error.refusal
    return Refusal(KUBERNETES_ERROR, error.message) if isinstance(error, KubeRefused) else refusal_of(error)


def _is_past_its_spec(run: MaintenanceJob) -> bool:
    """True if the run has begun or finished, so that its spec no longer matters."""
    return has_begun(run) or run.has_finished


def _goes(run: MaintenanceJob) -> bool:
    return run.metadata.deletion_timestamp is not None


def _of(run: MaintenanceJob, observed: ObservedRuns) -> ObservedRun:
    return observed.get(run.metadata.name, NOTHING_SEEN)


def _may_do_something(observed: ObservedRun) -> bool:
    return bool(observed.live_pods or observed.unknown)


def _begins(run: MaintenanceJob, turns: Mapping[str, Refusal]) -> bool:
    """True if the run has begun, or if it may begin because `turns` has no refusal of the run."""
    return has_begun(run) or run.metadata.name not in turns
