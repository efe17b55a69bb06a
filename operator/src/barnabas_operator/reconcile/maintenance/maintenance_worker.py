"""The worker for the MaintenanceJobs of a Cluster: begins runs, follows them, and tells how they end.

Drivers tell of themselves every few seconds: no round over the brokers comes for that.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.kube.gather_runs import gather_runs
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.planning.maintenance.run_facts import RunFacts
from barnabas_operator.planning.maintenance.run_status import DELETING, pending, refused
from barnabas_operator.planning.maintenance.run_step import has_begun
from barnabas_operator.planning.maintenance.run_turns import waiting_turns
from barnabas_operator.planning.refusal import CLUSTER_NOT_READY, INVALID_SPEC, KUBERNETES_ERROR, Refusal
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.brokers.applied_objects import ObjectRefused
from barnabas_operator.reconcile.finalizers import with_finalizers
from barnabas_operator.reconcile.kind_reconciler import Bodies, ReconcilerEnvironment
from barnabas_operator.reconcile.maintenance.run_statuses import RunStatuses
from barnabas_operator.reconcile.maintenance.run_work import RunWork
from barnabas_operator.reconcile.parsed_resources import ParsedResources
from barnabas_operator.reconcile.reconcile_parts import is_expected, retry_pause_s
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob, MaintenanceJobStatus

log = logging.getLogger(__name__)

NOBODY: Final = RunFacts()
NOT_YET: Final = "the Cluster was not looked at yet"


class MaintenanceWorker:
    """`begin`, `rest` and `stop` are what the rounds over the Cluster say; `run` ends with them."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        worker_environment = environment.worker_environment
        self._environment: Final = environment
        self._settings: Final = worker_environment.settings
        self._clock: Final = worker_environment.clock
        self._leadership: Final = worker_environment.leadership
        self._api: Final = worker_environment.api
        self._statuses: Final = StatusWriter(worker_environment.api, worker_environment.clock)
        self._work: Final = RunWork(worker_environment.api, worker_environment.settings, worker_environment.clock)
        self._read: Final = ParsedResources(MaintenanceJob)
        self._told: Final = RunStatuses(self._statuses, worker_environment.clock.monotonic_s, self._read.status_of)
        self._cluster: Cluster | None = None
        self._why_resting = NOT_YET
        self._known: Mapping[str, Json] = {}
        self._woken: Final = asyncio.Event()
        self._began_at: float | None = None

    def begin(self, cluster: Cluster, bodies: Bodies) -> None:
        """The brokers answer, and these runs may begin."""
        if self._cluster is None or self._why_resting:
            self._woken.set()
        self._cluster, self._why_resting = cluster, ""
        self._hear(bodies)

    def rest(self, bodies: Bodies, why: str) -> None:
        """The brokers are not to be asked, or cannot be: no run begins."""
        if why != self._why_resting:
            self._woken.set()
        self._why_resting = why
        self._hear(bodies)

    def stop(self) -> None:
        """Nothing is to be done any more."""
        self._cluster, self._why_resting = None, NOT_YET

    @property
    def idle_s(self) -> float:
        """How long ago the look that is under way did something; 0 between looks."""
        if self._began_at is None:
            return 0.0
        return self._clock.monotonic_s() - max(self._began_at, self._statuses.wrote_at)

    async def run(self) -> None:
        """Look after look, until it is cancelled."""
        pause, failures = 0.0, 0
        while True:
            await self._pause(pause)
            self._began_at = self._clock.monotonic_s()
            try:
                is_busy = await self.look()
                pause, failures = self._settings.run_look_s if is_busy else self._settings.drift_s, 0
            except Exception as error:
                failures += 1
                pause = retry_pause_s(self._settings.busy_s, failures)
                is_bug = not is_expected(error)
                log.warning(
                    "%s/%s: maintenance: in %.1f s again: %s", *self._environment.key, pause, error, exc_info=is_bug
                )
            self._began_at = None

    def _hear(self, bodies: Bodies) -> None:
        now_known = {name: _asked(body) for name, body in bodies.items()}
        if now_known != self._known:
            self._woken.set()
        self._known = now_known

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
            await asyncio.sleep(self._settings.batch_s)
        self._woken.clear()

    async def look(self) -> bool:
        """One look at all that is there now; whether the next is to come soon."""
        bodies = self._environment.found(MAINTENANCE_JOB.name)
        if not self._leadership.is_held:
            self.stop()  # What is known of the Cluster is old by the time that this one acts again.
            return False
        self._statuses.begin()
        runs = await self._readable(bodies)
        active = [run for run in runs if not run.has_finished or run.metadata.deletion_timestamp is not None]
        facts = (
            await gather_runs(self._api, self._environment.key.namespace, self._environment.key.name) if active else {}
        )
        ending = [run for run in active if run.metadata.deletion_timestamp is not None]
        await asyncio.gather(*(self._end(run, facts.get(run.metadata.name, NOBODY), bodies) for run in ending))
        done = [run for run in runs if run.has_finished and run not in ending]
        await asyncio.gather(*(self._work.expire(run) for run in done))
        await with_finalizers(self._statuses, done, bodies, lambda _: False, self._now())
        await self._bring([run for run in active if run not in ending], ending, facts, bodies)
        self._statuses.check()
        return bool(active) or any(run.spec.ttl_seconds_after_finished is not None for run in done)

    async def _readable(self, bodies: Bodies) -> Sequence[MaintenanceJob]:
        """The others are told what is wrong."""
        runs, invalid = self._read.all(bodies.values())
        told_at = self._now()
        await self._tell((with_problem(run, Refusal(INVALID_SPEC, why), told_at) for run, why in invalid), bodies)
        return [self._newest(run, bodies) for run in runs]

    async def _bring(
        self,
        declared: Sequence[MaintenanceJob],
        ending: Sequence[MaintenanceJob],
        facts: Mapping[str, RunFacts],
        bodies: Bodies,
    ) -> None:
        wrong = {run.metadata.name: "; ".join(run_problems(run.spec)) for run in declared if not has_begun(run)}
        cluster, now = self._environment.key.name, self._now()
        bad = [run for run in declared if wrong.get(run.metadata.name)]
        await self._tell((refused(run, cluster, wrong[run.metadata.name], now) for run in bad), bodies)
        good = [run for run in declared if run not in bad]
        turns = waiting_turns([*good, *(run for run in ending if has_begun(run))])
        if not self._why_resting:  # Else none begins.
            good = await with_finalizers(self._statuses, good, bodies, lambda run: _begins(run, turns), now)
        await asyncio.gather(
            *(
                self._step(run, facts.get(run.metadata.name, NOBODY), turns.get(run.metadata.name), bodies)
                for run in good
            )
        )

    async def _step(self, run: MaintenanceJob, facts: RunFacts, turn: Refusal | None, bodies: Bodies) -> None:
        name = self._environment.key.name
        why_not = Refusal(CLUSTER_NOT_READY, self._why_resting) if self._why_resting else turn
        try:
            told = await self._work.step(run, facts, self._cluster, name, why_not)
        except (KubeRefused, ObjectRefused) as error:
            told = self._refused(run, error)
        await self._tell([told], bodies)

    def _refused(self, run: MaintenanceJob, error: KubeRefused | ObjectRefused) -> MaintenanceJob:
        """What can never be made is a fault of the run, which cannot change."""
        name, now = self._environment.key.name, self._now()
        why = error.refusal if isinstance(error, ObjectRefused) else Refusal(KUBERNETES_ERROR, error.message)
        if has_begun(run):
            return with_problem(run, why, now)
        is_final = isinstance(error, KubeRefused) and error.is_about_the_object
        return refused(run, name, why.message, now) if is_final else pending(run, name, why, now)

    async def _end(self, run: MaintenanceJob, facts: RunFacts, bodies: Bodies) -> None:
        """The resource goes once its pods have ended: another run may then be about the same."""
        if not await self._work.end(run, facts):
            why = f"it is deleted once its pods have ended: {facts.live_pods} run"
            await self._tell([with_problem(run, Refusal(DELETING, why), self._now())], bodies)
            return
        await self._statuses.release(bodies[run.metadata.name])

    async def _tell(self, runs: Iterable[MaintenanceJob], bodies: Bodies) -> None:
        await self._told.tell(runs, bodies)

    def _newest(self, run: MaintenanceJob, bodies: Bodies) -> MaintenanceJob:
        """With the status that was written last, which the watch may not have told of yet."""
        written = self._statuses.newer_than(bodies[run.metadata.name])
        return replace(run, status=written) if isinstance(written, MaintenanceJobStatus) else run

    def _now(self) -> str:
        return time_text(self._clock.now_ms())


def _begins(run: MaintenanceJob, turns: Mapping[str, Refusal]) -> bool:
    """Whether it begins now, or has begun: then its deletion must not go unnoticed."""
    return has_begun(run) or run.metadata.name not in turns


def _asked(body: Json) -> Json:
    """What a resource asks for, without what the worker itself writes."""
    meta = body["metadata"]
    return {"uid": meta["uid"], "generation": meta.get("generation"), "goes": "deletionTimestamp" in meta}
