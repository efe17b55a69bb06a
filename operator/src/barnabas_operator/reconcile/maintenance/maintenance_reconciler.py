"""MaintenanceJobs in the rounds over their Cluster, which only hand them over: a worker of their own looks at them."""

import asyncio
import math
from typing import Final

from barnabas_operator.reconcile.kind_reconciler import Bodies, KindReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.reconcile.maintenance.maintenance_worker import MaintenanceWorker
from barnabas_operator.resources.cluster import Cluster


class MaintenanceReconciler(KindReconciler):
    """Of MaintenanceJobs. The worker is started when there is one, and ends with the rounds."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        self._environment: Final = environment
        self._worker: Final = MaintenanceWorker(environment)
        self._running: asyncio.Task[None] | None = None

    @property
    def idle_s(self) -> float:
        """How long ago the worker of the runs did something; infinite where it has ended."""
        if self._running is None:
            return 0.0
        return math.inf if self._running.done() else self._worker.idle_s

    def close(self) -> None:
        """Ends the worker. Runs that are under way go on."""
        if self._running is not None:
            self._running.cancel()

    async def release(self, bodies: Bodies) -> None:
        """Nobody reconciles them any more: removes their finalizers."""
        self._worker.stop()
        await asyncio.gather(*(self._environment.statuses.release(body) for body in bodies.values()))

    async def wait(self, bodies: Bodies, why: str) -> None:
        """None begins; those that have begun go on."""
        self._start_for(bodies)
        self._worker.rest(bodies, why)

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """The worker does that, in its own time."""
        self._start_for(bodies)
        self._worker.begin(cluster, bodies)
        return seen

    def _start_for(self, bodies: Bodies) -> None:
        if bodies and self._running is None:
            self._running = asyncio.create_task(self._worker.run())
