"""The reconciler for kinds that have a background worker: it only passes the resources on to the worker."""

import asyncio
import math
from collections.abc import Callable
from typing import Final

from barnabas_operator.reconcile.in_turns import all_ended
from barnabas_operator.reconcile.kind_reconciler import Bodies, KindReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.reconcile.look_worker import Looker, LookWorker
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json


class LookReconciler(KindReconciler):
    """The reconciler of one kind, which starts a background worker when there is a first resource of this kind."""

    def __init__(
        self, looker_of: Callable[[ReconcilerEnvironment], Looker], environment: ReconcilerEnvironment
    ) -> None:
        self._environment: Final = environment
        self._looker: Final = looker_of(environment)
        self._worker: Final = LookWorker(environment, self._looker)
        self._running: asyncio.Task[None] | None = None

    @property
    def idle_s(self) -> float:
        """Return the seconds without progress of the worker: infinite after its end, 0 before its start."""
        if self._running is None:
            return 0.0
        return math.inf if self._running.done() else self._worker.idle_s

    def close(self) -> None:
        """End the worker. Pods that it has started keep running."""
        if self._running is not None:
            self._running.cancel()
        self._looker.close()

    async def release(self, bodies: Bodies) -> None:
        """Stop the worker, and remove the finalizers of the resources.

        Before that, temporary changes for the resources, such as a scaled-down workload, are undone.
        """
        await self._worker.stopped()
        await all_ended(self._release(body) for body in bodies.values())

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Start the worker if needed; forbid the worker to send requests to brokers, for the reason `why`."""
        self._start_for(bodies)
        self._worker.rest(bodies, why)

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Start the worker if needed, and pass on the resources, without waiting for the worker."""
        self._start_for(bodies)
        self._worker.begin(cluster, bodies)
        return seen

    async def _release(self, body: Json) -> None:
        await self._looker.give_back(body)
        await self._environment.statuses.release(body)

    def _start_for(self, bodies: Bodies) -> None:
        if bodies and self._running is None:
            self._running = asyncio.create_task(self._worker.run())
