"""Runs the parts of a reconciliation, such as brokers and Topics, even if an earlier part has failed."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NoReturn, ParamSpec, TypeVar

from barnabas_core.clock import LoopClock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.leader_election.election import NotLeading
from barnabas_operator.planning.brokers.broker_steps import BROKERS_UNREACHABLE
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import INTERNAL_ERROR, KUBERNETES_ERROR, Refusal

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

    def heard(self, state: ClusterState) -> None:
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
LOOK_S_MAX: Final = 5.0
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
        self._wait_until_s = self._now_s() + min(LOOK_S_MAX, retry_pause_s(self._first_s, self._failures))

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
