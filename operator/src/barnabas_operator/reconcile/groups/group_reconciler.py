"""ConsumerGroups in the rounds over their Cluster, which only hand them over: a worker of their own looks at them."""

import asyncio
import math
from typing import Final

from barnabas_operator.kafka.group_looks import GroupLooks
from barnabas_operator.reconcile.groups.given_back_target import give_back_target
from barnabas_operator.reconcile.groups.group_worker import GroupWorker
from barnabas_operator.reconcile.kind_reconciler import Bodies, KindReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

PATIENCE_LOOKS: Final = 4
"""A group stalls, or has stopped, after as many looks without progress at least: a minute."""


class GroupReconciler(KindReconciler):
    """Of ConsumerGroups. The worker is started when there is one, and ends with the rounds."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        self._environment: Final = environment
        worker_environment = environment.worker_environment
        patience_s = PATIENCE_LOOKS * worker_environment.settings.group_look_s
        self._worker: Final = GroupWorker(environment, GroupLooks(patience_s, worker_environment.clock))
        self._running: asyncio.Task[None] | None = None

    @property
    def idle_s(self) -> float:
        """For how long the worker has done nothing; infinite where it has ended, 0 where it was not needed yet."""
        if self._running is None:
            return 0.0
        return math.inf if self._running.done() else self._worker.idle_s

    def close(self) -> None:
        """Ends the worker of the groups."""
        if self._running is not None:
            self._running.cancel()
        self._worker.close()

    async def release(self, bodies: Bodies) -> None:
        """Nobody reconciles them any more: removes their finalizers."""
        await self._worker.stopped()
        await asyncio.gather(*(self._release(body) for body in bodies.values()))

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Starts the worker where it does not run, and tells it why no brokers can be asked; it writes the statuses."""
        self._start_for(bodies)
        self._worker.rest(bodies, why)

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """The worker does that, in its own time."""
        self._start_for(bodies)
        self._worker.begin(cluster, bodies)
        return seen

    async def _release(self, body: Json) -> None:
        await give_back_target(
            self._environment.worker_environment.api, self._environment.worker_environment.clock, body
        )
        await self._environment.statuses.release(body)

    def _start_for(self, bodies: Bodies) -> None:
        if bodies and self._running is None:
            self._running = asyncio.create_task(self._worker.run())
