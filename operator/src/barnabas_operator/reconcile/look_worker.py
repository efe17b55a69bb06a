"""The reconciler with a background worker, which periodically reconciles a Cluster's resources of one kind."""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, Protocol

from barnabas_operator.reconcile.reconcile_parts import RetryingLoop
from barnabas_operator.reconcile.status_writer import StatusWriter, all_ended
from barnabas_operator.reconcile.worker_environment import Bodies, KindReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json, Resource, Status


class Looker(Protocol):
    """The reconciler of the resources of one kind, which a background worker calls; three methods may do nothing."""

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

    async def give_back(self, body: Json) -> None:  # noqa: ARG002
        """Undo temporary changes, such as a scaled-down workload, for a resource that is no longer reconciled."""
        return

    def look_failed(self) -> None:
        """Handle an exception that `look` has raised."""
        return

    def close(self) -> None:
        """Release connections, because `look` is never called again."""
        return


class LookWorker(KindReconciler):
    """The reconciler of one kind, which starts its background worker when there is a first resource of this kind."""

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
        self._running: asyncio.Task[None] | None = None
        what, retry_s = f"{'/'.join(environment.key)}: {looker.kind}s", self._settings.busy_s
        self._loop: Final = RetryingLoop(what, self._pause, self._attempt, self._clock, retry_s, self._look_ended)

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Start the worker if needed, and pass on the resources, without waiting for the worker."""
        self._start_for(bodies)
        self.begin(cluster, bodies)
        return seen

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Start the worker if needed; forbid the worker to send requests to brokers, for the reason `why`."""
        self._start_for(bodies)
        self.rest(bodies, why)

    async def release(self, bodies: Bodies) -> None:
        """Stop working for the Cluster, wait for the running reconciliation, and remove the finalizers.

        Before that, temporary changes for the resources, such as a scaled-down workload, are undone.
        """
        self.stop()
        async with self._look_turn:
            pass
        await all_ended(self._release(body) for body in bodies.values())

    async def _release(self, body: Json) -> None:
        await self._looker.give_back(body)
        await self._environment.statuses.release(body)

    def close(self) -> None:
        """End the worker. Pods that it has started keep running."""
        if self._running is not None:
            self._running.cancel()
        self._looker.close()

    def _start_for(self, bodies: Bodies) -> None:
        if bodies and self._running is None:
            self._running = asyncio.create_task(self.run())

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

    @property
    def idle_s(self) -> float:
        """Return the seconds since the running reconciliation last made progress: infinite after the worker's end.

        Between reconciliations, and before the worker's start, return 0.
        """
        has_ended = self._running is not None and self._running.done()
        return math.inf if has_ended else self._loop.idle_s(self._looker.acted_at)

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


class Pace(NamedTuple):
    """The rate at which statuses are written in which only numbers, such as the lag, have changed."""

    is_news: Callable[[Any, Any], bool]
    """Return True if a change from the first status to the second must be written at once."""
    every_s: float
    """The shortest time between two writes of a status without news."""
    at_once_max: int | None = None
    """The maximum number of statuses without news in one call of `write`, or None; the oldest are chosen first."""


class PacedStatuses(Generic[ResourceT]):
    """The statuses of one Cluster's resources of one kind. `now_s` returns the monotonic time."""

    def __init__(self, statuses: StatusWriter, now_s: Callable[[], float], pace: Pace) -> None:
        self._statuses: Final = statuses
        self._now_s: Final = now_s
        self._pace: Final = pace
        self._written_s: dict[str, float] = {}
        """The monotonic time of the last write, by uid."""

    def keep(self, bodies: Bodies) -> None:
        """Forget resources that are not in `bodies`."""
        there = {body["metadata"]["uid"] for body in bodies.values()}
        self._written_s = {uid: at for uid, at in self._written_s.items() if uid in there}

    async def write(self, changes: Iterable[tuple[ResourceT, Status | None]], bodies: Bodies) -> None:
        """Write changed statuses at the pace of this kind; `changes` pairs each resource with its previous status."""
        news: list[ResourceT] = []
        others: list[ResourceT] = []
        for resource, before in changes:
            assert resource.status is not None, "the status of a resource must be set before the status is written"
            if before is None or self._pace.is_news(before, resource.status):
                news.append(resource)
            elif before != resource.status and self._now_s() - self._at(resource) >= self._pace.every_s:
                others.append(resource)
        written = [*news, *sorted(others, key=self._at)[: self._pace.at_once_max]]
        self._written_s |= dict.fromkeys((each.metadata.uid or "" for each in written), self._now_s())
        await self._statuses.write((each, bodies[each.metadata.name]) for each in written)

    def _at(self, resource: Resource) -> float:
        return self._written_s.get(resource.metadata.uid or "", -math.inf)
