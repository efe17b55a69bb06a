"""Runs the parts of a reconciliation, such as brokers and Topics, even if an earlier part has failed.

A kind that is slow, or that must react to more than changes of resources, has a worker of its own (`PollWorker`).
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, NamedTuple, NoReturn, ParamSpec, Protocol, TypeVar

from barnabas_core.clock import LoopClock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.leader_election import NotLeading
from barnabas_operator.planning.brokers.broker_steps import BROKERS_UNREACHABLE
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import INTERNAL_ERROR, KUBERNETES_ERROR, Refusal
from barnabas_operator.reconcile.worker_environment import (
    Bodies,
    KindReconciler,
    ReconcilerEnvironment,
    Seen,
    StatusWriter,
    all_ended,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json, Resource, Status
from barnabas_operator.resources.schema_check import ResourceT

PATIENCE_S: Final = 15.0
"""The time for which failed requests to brokers are ignored.

The time exceeds 10 s, because a request to a broker that has just stopped fails only after 10 s.
"""


class LastKnownState:
    """The state that one Cluster's brokers last reported. `now_s` returns the monotonic time.

    Failures are ignored for PATIENCE_S, because every rolling restart breaks connections.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._state: ClusterState | None = None
        self._missed_since_s: float | None = None
        self._failure = ""

    def reported(self, state: ClusterState) -> None:
        """Record the state from a reconciliation in which the brokers answered every request."""
        self._state, self._missed_since_s, self._failure = state, None, ""

    def missed(self, failure: str) -> None:
        """Record that no broker answered; `failure` is the error message."""
        self._failure = failure
        if self._missed_since_s is None:  # Later failures do not restart the grace period.
            self._missed_since_s = self._now_s() if self._state is not None else -math.inf

    @property
    def state(self) -> ClusterState | None:
        """Return the last reported state; None before the first report, or after the grace period without a report."""
        return self._state if not self._is_silent else None

    @property
    def silence(self) -> str:
        """Return the last error if `state` is None because of failed requests; otherwise return an empty string."""
        return self._failure if self._is_silent else ""

    @property
    def _is_silent(self) -> bool:
        return self._missed_since_s is not None and self._now_s() - self._missed_since_s > PATIENCE_S


log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S_MAX: Final = 10.0
"""The longest pause before a retry, in seconds."""
DOUBLINGS_MAX: Final = 16


class ReconcileIncomplete(Exception):
    """The error that a part of the reconciliation has failed; the failure has already been logged."""


class ReconcileParts:
    """The runner for the parts of one reconciliation, such as brokers and Topics.

    `of` is the name of the Cluster, for log lines.
    """

    def __init__(self, of: str) -> None:
        self._of = of
        self._failed: list[Exception] = []

    async def run(self, part: Awaitable[T]) -> T | None:
        """Run a part of the reconciliation, and return its result, or None if the part failed.

        Raises NotLeading, which must end the whole reconciliation.
        """
        try:
            return await part
        except NotLeading:
            raise
        except Exception as error:  # An error in one part must not stop the other parts.
            log.warning("%s: %s", self._of, error, exc_info=not is_expected(error))
            self._failed.append(error)
            return None

    def problem(self) -> Refusal | None:
        """Return the problem to report: an internal error of the operator, or else the first failure, or None."""
        found = sorted((refusal_of(error) for error in self._failed), key=lambda each: each.reason != INTERNAL_ERROR)
        return next(iter(found), None)

    @property
    def is_unheard(self) -> bool:
        """True if at least one part failed, and every failed part failed because the API server did not answer."""
        return bool(self._failed) and all(isinstance(each, KubeUnreachable) for each in self._failed)

    def check(self) -> None:
        """Raise ReconcileIncomplete if a part failed, so that the worker soon tries again."""
        if self._failed:
            raise ReconcileIncomplete(str(self._failed[0])) from self._failed[0]


class ShortOutages:
    """The check whether failed reconciliations of one Cluster show only a short outage of the API server.

    A restart of the API server breaks connections, so a short outage is not reported. `now_s` returns the monotonic
    time.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s: float | None = None

    def is_one(self, parts: ReconcileParts) -> bool:
        """True if `parts` failed only with KubeUnreachable, and the outage began at most PATIENCE_S seconds ago."""
        if not parts.is_unheard:
            self._since_s = None
            return False
        self._since_s = self._now_s() if self._since_s is None else self._since_s
        return self._now_s() - self._since_s <= PATIENCE_S


def is_expected(error: Exception) -> bool:
    """True if the error is not a bug: a server does not answer or refuses, or another operator is the leader."""
    return isinstance(error, KubeUnreachable | KubeRefused | ClusterUnreachable | NotLeading | ReconcileIncomplete)


def refusal_of(error: Exception) -> Refusal:
    """Return the reason and the message with which a status reports the error."""
    if isinstance(error, ClusterUnreachable):
        return Refusal(BROKERS_UNREACHABLE, f"the brokers do not answer: {error}")
    if is_expected(error):
        return Refusal(KUBERNETES_ERROR, str(error))
    return Refusal(INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def retry_pause_s(busy_s: float, failures: int) -> float:
    """Return the pause in seconds after `failures` consecutive failures."""
    return min(RETRY_S_MAX, busy_s * 2.0 ** min(failures, DOUBLINGS_MAX))


P = ParamSpec("P")

AT_ONCE_MAX: Final = 64
"""The number of threads, enough for 100 unreachable Clusters, because each holds a thread for 3 s of every 8 s."""
BACKOFF_S_MAX: Final = 5.0
_THREADS: Final = ThreadPoolExecutor(AT_ONCE_MAX, "brokers")


async def blocking(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run the call in a thread; return its result, or raise its exception."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(call, *args, **kwargs))


class BrokerBackoff:
    """The backoff for brokers that do not answer: each pause is twice the previous pause, up to 5 s.

    The first pause is twice `first_s`.
    """

    def __init__(self, first_s: float, now_s: Callable[[], float]) -> None:
        self._first_s = first_s
        self._now_s = now_s
        self._failures = 0
        self._wait_until_s = 0.0

    @property
    def is_over(self) -> bool:
        """True if the pause is over, so that brokers may be asked again."""
        return self._now_s() >= self._wait_until_s

    def lose(self) -> None:
        """Begin the next, longer pause, because no broker answered."""
        self._failures += 1
        self._wait_until_s = self._now_s() + min(BACKOFF_S_MAX, retry_pause_s(self._first_s, self._failures))

    def renew(self) -> None:
        """Reset the backoff, because a broker answered or a pod has changed."""
        self._failures, self._wait_until_s = 0, 0.0


class MustEnd(Exception):
    """The error after which the operator must end and be started again; the message says why."""


def _ignore(_took_s: float, _has_succeeded: bool) -> None:
    return


class RetryingLoop:
    """The loop that repeatedly calls `wait` with a pause in seconds, and then `attempt`, which returns the next pause.

    After each attempt, the loop calls `on_end` with two arguments: the duration of the attempt in seconds, and whether
    the attempt succeeded.
    """

    def __init__(
        self,
        what: str,
        wait: Callable[[float], Awaitable[object]],
        attempt: Callable[[], Awaitable[float]],
        clock: LoopClock,
        retry_s: float,
        on_end: Callable[[float, bool], object] = _ignore,
    ) -> None:
        self._what = what
        self._wait = wait
        self._attempt = attempt
        self._clock = clock
        self._retry_s = retry_s
        self._on_end = on_end
        self._failures = 0
        self._began_at: float | None = None

    async def run(self) -> NoReturn:
        """Repeat the attempts until cancelled. Raises MustEnd if an attempt does."""
        pause_s = 0.0
        while True:
            await self._wait(pause_s)
            began_at = self._began_at = self._clock.monotonic_s()
            pause_s = await self._try()
            self._began_at = None
            self._on_end(self._clock.monotonic_s() - began_at, self._failures == 0)

    async def _try(self) -> float:
        try:
            pause_s = await self._attempt()
        except MustEnd:
            raise
        except Exception as error:  # The loop must survive every error, because nothing restarts it.
            self._failures += 1
            pause_s = retry_pause_s(self._retry_s, self._failures)
            is_bug = not is_expected(error)
            log.warning(
                "%s: an error occurred; trying again in %.1f s: %s", self._what, pause_s, error, exc_info=is_bug
            )
        else:
            self._failures = 0
        return pause_s

    @property
    def took_s(self) -> float:
        """Return the seconds that the running attempt has taken so far; 0 between attempts."""
        return self.idle_s(0.0)

    def idle_s(self, acted_at: float) -> float:
        """Return the seconds without progress in the running attempt; 0 between attempts.

        `acted_at` is the monotonic time of the last progress, which may be before the start of the attempt.
        """
        if self._began_at is None:
            return 0.0
        return self._clock.monotonic_s() - max(self._began_at, acted_at)


class Poller(Protocol):
    """The reconciler of the resources of one kind, which a background worker calls; three methods may do nothing."""

    kind: str
    """The field `kind` of the resources."""

    async def poll(self, cluster: Cluster | None, why_resting: str, bodies: Bodies) -> bool:
        """Reconcile all resources once; return True if the next call must come soon.

        `cluster` is None until the operator has reached the Cluster's brokers. `why_resting` says why requests to the
        brokers are forbidden, and is empty if requests are allowed. After an exception, which the worker logs, `poll`
        is soon called again.
        """

    def pause_s(self, took_s: float, *, is_busy: bool) -> float:
        """Return the seconds to wait after a call of `poll` that took `took_s`."""

    @property
    def acted_at(self) -> float:
        """Return the monotonic time of the last progress, such as a written status."""

    async def give_back(self, body: Json) -> None:  # noqa: ARG002
        """Undo temporary changes, such as a scaled-down workload, for a resource that is no longer reconciled."""
        return

    def poll_failed(self) -> None:
        """Handle an exception that `poll` has raised."""
        return

    def close(self) -> None:
        """Release connections, because `poll` is never called again."""
        return


class PollWorker(KindReconciler):
    """The reconciler of one kind, which starts its background worker when there is a first resource of this kind."""

    def __init__(self, environment: ReconcilerEnvironment, poller: Poller) -> None:
        worker_environment = environment.worker_environment
        self._environment: Final = environment
        self._poller: Final = poller
        self._settings: Final = worker_environment.settings
        self._clock: Final = worker_environment.clock
        self._leadership: Final = worker_environment.leadership
        self._cluster: Cluster | None = None
        self._why_resting = ""
        self._known: Mapping[str, Json] = {}
        self._woken: Final = asyncio.Event()
        self._poll_turn: Final = asyncio.Lock()
        self._running: asyncio.Task[None] | None = None
        what, retry_s = f"{'/'.join(environment.key)}: {poller.kind}s", self._settings.busy_s
        self._loop: Final = RetryingLoop(what, self._pause, self._attempt, self._clock, retry_s, self._poll_ended)

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
        async with self._poll_turn:
            pass
        await all_ended(self._release(body) for body in bodies.values())

    async def _release(self, body: Json) -> None:
        await self._poller.give_back(body)
        await self._environment.statuses.release(body)

    def close(self) -> None:
        """End the worker. Pods that it has started keep running."""
        if self._running is not None:
            self._running.cancel()
        self._poller.close()

    def _start_for(self, bodies: Bodies) -> None:
        if bodies and self._running is None:
            self._running = asyncio.create_task(self.run())

    def begin(self, cluster: Cluster, bodies: Bodies) -> None:
        """Allow requests to brokers; wake the worker if requests were forbidden or if resources have changed."""
        if self._cluster is None or self._why_resting:
            self._woken.set()
        self._cluster, self._why_resting = cluster, ""
        self._update(bodies)

    def rest(self, bodies: Bodies, why: str) -> None:
        """Forbid requests to brokers, for the reason `why`.

        Wakes the worker if the reason is new or if resources have changed.
        """
        if why != self._why_resting:
            self._woken.set()
        self._why_resting = why
        self._update(bodies)

    def stop(self) -> None:
        """Stop working for the Cluster until `begin` is called."""
        self._cluster, self._why_resting = None, ""

    @property
    def idle_s(self) -> float:
        """Return the seconds since the running reconciliation last made progress: infinite after the worker's end.

        Between reconciliations, and before the worker's start, return 0.
        """
        has_ended = self._running is not None and self._running.done()
        return math.inf if has_ended else self._loop.idle_s(self._poller.acted_at)

    async def run(self) -> None:
        """Reconcile the resources repeatedly, until cancelled."""
        await self._loop.run()

    async def _attempt(self) -> float:
        is_busy = await self.poll()
        return self._poller.pause_s(self._loop.took_s, is_busy=is_busy)

    def _poll_ended(self, _took_s: float, has_succeeded: bool) -> None:
        if not has_succeeded:
            self._poller.poll_failed()

    async def poll(self) -> bool:
        """Reconcile all resources once if this operator is the leader; return True if the next call must come soon."""
        async with self._poll_turn:
            bodies = self._environment.found(self._poller.kind)
            if not self._leadership.is_held:
                self.stop()  # The cached state would be out of date when this operator becomes the leader again.
                return False
            return await self._poller.poll(self._cluster, self._why_resting, bodies)

    def _update(self, bodies: Bodies) -> None:
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
