"""A background worker, which periodically reconciles a Cluster's resources of one kind."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, Protocol

from barnabas_operator.reconcile.kind_reconciler import Bodies, ReconcilerEnvironment
from barnabas_operator.reconcile.retrying_loop import RetryingLoop
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json


class Looker(Protocol):
    """The reconciler of the resources of one kind, which a background worker calls."""

    kind: str
    """The field `kind` of the resources."""

    async def look(self, cluster: Cluster | None, why_resting: str, bodies: Bodies) -> bool:
        """Reconcile all resources once; return True if the next call must come soon.

        `cluster` is None until the operator has reached the Cluster's brokers. `why_resting` says why requests to the
        brokers are forbidden, and is empty if requests are allowed. After an exception, which the worker logs, `look`
        is soon called again.
        """

    def pause_s(self, took_s: float, *, is_busy: bool) -> float:
        """Return the seconds to wait after a call of `look` that took `took_s`."""

    @property
    def acted_at(self) -> float:
        """Return the monotonic time of the last progress, such as a written status."""

    async def give_back(self, body: Json) -> None:
        """Undo temporary changes, such as a scaled-down workload, for a resource that is no longer reconciled."""

    def look_failed(self) -> None:
        """Handle an exception that `look` has raised."""

    def close(self) -> None:
        """Release connections, because `look` is never called again."""


class LookWorker:
    """The background worker for the resources of one kind. LookReconciler calls `begin`, `rest` and `stopped`."""

    def __init__(self, environment: ReconcilerEnvironment, looker: Looker) -> None:
        worker_environment = environment.worker_environment
        self._environment: Final = environment
        self._looker: Final = looker
        self._settings: Final = worker_environment.settings
        self._clock: Final = worker_environment.clock
        self._leadership: Final = worker_environment.leadership
        self._cluster: Cluster | None = None
        self._why_resting = ""
        self._known: Mapping[str, Json] = {}
        self._woken: Final = asyncio.Event()
        self._look_turn: Final = asyncio.Lock()
        what, retry_s = f"{'/'.join(environment.key)}: {looker.kind}s", self._settings.busy_s
        self._loop: Final = RetryingLoop(what, self._pause, self._attempt, self._clock, retry_s, self._look_ended)

    def begin(self, cluster: Cluster, bodies: Bodies) -> None:
        """Allow requests to brokers; wake the worker if requests were forbidden or if resources have changed."""
        if self._cluster is None or self._why_resting:
            self._woken.set()
        self._cluster, self._why_resting = cluster, ""
        self._hear(bodies)

    def rest(self, bodies: Bodies, why: str) -> None:
        """Forbid requests to brokers, for the reason `why`.

        Wakes the worker if the reason is new or if resources have changed.
        """
        if why != self._why_resting:
            self._woken.set()
        self._why_resting = why
        self._hear(bodies)

    def stop(self) -> None:
        """Stop working for the Cluster until `begin` is called."""
        self._cluster, self._why_resting = None, ""

    async def stopped(self) -> None:
        """Stop working for the Cluster; return when the running reconciliation has ended."""
        self.stop()
        async with self._look_turn:
            pass

    @property
    def idle_s(self) -> float:
        """Return the seconds since the running reconciliation last made progress; 0 between reconciliations."""
        return self._loop.idle_s(self._looker.acted_at)

    async def run(self) -> None:
        """Reconcile the resources repeatedly, until cancelled."""
        await self._loop.run()

    async def _attempt(self) -> float:
        is_busy = await self.look()
        return self._looker.pause_s(self._loop.took_s, is_busy=is_busy)

    def _look_ended(self, _took_s: float, has_succeeded: bool) -> None:
        if not has_succeeded:
            self._looker.look_failed()

    async def look(self) -> bool:
        """Reconcile all resources once if this operator is the leader; return True if the next call must come soon."""
        async with self._look_turn:
            bodies = self._environment.found(self._looker.kind)
            if not self._leadership.is_held:
                self.stop()  # The cached state would be out of date when this operator becomes the leader again.
                return False
            return await self._looker.look(self._cluster, self._why_resting, bodies)

    def _hear(self, bodies: Bodies) -> None:
        """Wake the worker if resources were added, changed or deleted."""
        now_known = {name: _asked(body) for name, body in bodies.items()}
        if now_known != self._known:
            self._woken.set()
        self._known = now_known

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await self._woken.wait()
            await self._clock.sleep(self._settings.batch_s)
        self._woken.clear()


def _asked(body: Json) -> Json:
    """Return the data whose change wakes the worker: uid, generation, and whether the resource is being deleted."""
    meta = body["metadata"]
    return {"uid": meta["uid"], "generation": meta.get("generation"), "goes": "deletionTimestamp" in meta}
