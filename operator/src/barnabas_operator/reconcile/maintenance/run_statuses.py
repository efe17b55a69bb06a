"""Chooses the MaintenanceJob statuses to write: changed conditions at once, changed numbers every ten seconds."""

import math
from collections.abc import Callable, Iterable
from typing import Final

from barnabas_operator.planning.maintenance.run_status import is_worth_a_write
from barnabas_operator.reconcile.kind_reconciler import Bodies
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.maintenance_job import MaintenanceJob, MaintenanceJobStatus
from barnabas_operator.resources.resource import Status

NUMBERS_EVERY_S: Final = 10.0


class RunStatuses:
    """The rate limit for writing the statuses of one Cluster's runs. `now_s` returns the monotonic time."""

    def __init__(
        self, statuses: StatusWriter, now_s: Callable[[], float], status_of: Callable[[str], Status | None]
    ) -> None:
        """Create the object. `status_of` returns the status of the named run, as the watch last reported it."""
        self._statuses = statuses
        self._status_of = status_of
        self._now_s = now_s
        self._written_s: dict[str, float] = {}
        """The monotonic time at which the status of each run was last written, by uid of the MaintenanceJob."""

    async def write(self, runs: Iterable[MaintenanceJob], bodies: Bodies) -> None:
        """Write a status with changed conditions at once, and a status with other changes at most every ten seconds."""
        due = [run for run in runs if self._is_due(run, bodies)]
        there = {body["metadata"]["uid"] for body in bodies.values()}
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in there}
        self._written_s |= dict.fromkeys((run.metadata.uid or "" for run in due), self._now_s())
        await self._statuses.write((run, bodies[run.metadata.name]) for run in due)

    def _is_due(self, run: MaintenanceJob, bodies: Bodies) -> bool:
        assert run.status is not None, "the status of a run must be set before the status is written"
        before = self._before(run, bodies)
        if before == run.status:
            return False
        is_late = self._now_s() - self._written_s.get(run.metadata.uid or "", -math.inf) >= NUMBERS_EVERY_S
        return is_late or is_worth_a_write(before, run.status)

    def _before(self, run: MaintenanceJob, bodies: Bodies) -> MaintenanceJobStatus | None:
        name = run.metadata.name
        before = self._statuses.newer_than(bodies[name]) or self._status_of(name)
        return before if isinstance(before, MaintenanceJobStatus) else None
