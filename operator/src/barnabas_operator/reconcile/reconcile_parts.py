"""The parts of a reconciliation: one that fails is reported, and the others still run."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kube.api import KubeRefused, KubeUnreachable
from barnabas_operator.leader_election.leadership import NotLeading
from barnabas_operator.planning.brokers.broker_steps import BROKERS_UNREACHABLE
from barnabas_operator.planning.refusal import INTERNAL_ERROR, KUBERNETES_ERROR, Refusal
from barnabas_operator.reconcile.last_known_state import PATIENCE_S

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S_MAX: Final = 10.0
"""The longest pause before a retry: as long as the watch's, so that both notice soon that the API server is back."""
DOUBLINGS_MAX: Final = 16


class ReconcileIncomplete(Exception):
    """A part of the reconciliation failed; that is logged and reported."""


class ReconcileParts:
    """The parts of one reconciliation of the named Cluster."""

    def __init__(self, of: str) -> None:
        self._of = of
        self._failed: list[Exception] = []

    async def run(self, part: Awaitable[T]) -> T | None:
        """Return the result of the part; None if it failed.

        Raises NotLeading: the reconciliation ends and reports nothing, as it is no fault of the Cluster.
        """
        try:
            return await part
        except NotLeading:
            raise
        except Exception as error:  # Any error of one part must not stop the others.
            log.warning("%s: %s", self._of, error, exc_info=not is_expected(error))
            self._failed.append(error)
            return None

    def problem(self) -> Refusal | None:
        """Return the problem to report; faults of the operator come first, as nothing else shows them."""
        found = sorted((refusal_of(error) for error in self._failed), key=lambda each: each.reason != INTERNAL_ERROR)
        return next(iter(found), None)

    @property
    def is_unheard(self) -> bool:
        """True if parts failed, each because the API server did not answer."""
        return bool(self._failed) and all(isinstance(each, KubeUnreachable) for each in self._failed)

    def check(self) -> None:
        """Raise ReconcileIncomplete if a part failed: the worker tries again soon."""
        if self._failed:
            raise ReconcileIncomplete(str(self._failed[0])) from self._failed[0]


class ShortOutages:
    """The short outages in the reconciliations of one Cluster; `now_s` is a monotonic clock.

    An API server that rolls breaks connections, as brokers do in a roll (`LastKnownState`), so a short outage is
    ignored.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._since_s: float | None = None

    def is_one(self, parts: ReconcileParts) -> bool:
        """True if nothing else failed this time, and the outage is still short."""
        if not parts.is_unheard:
            self._since_s = None
            return False
        self._since_s = self._now_s() if self._since_s is None else self._since_s
        return self._now_s() - self._since_s <= PATIENCE_S


def is_expected(error: Exception) -> bool:
    """True if the error is no fault of the operator: a server is away or refuses, or another operator acts."""
    return isinstance(error, KubeUnreachable | KubeRefused | ClusterUnreachable | NotLeading | ReconcileIncomplete)


def refusal_of(error: Exception) -> Refusal:
    """Return the refusal that reports the error."""
    if isinstance(error, ClusterUnreachable):
        return Refusal(BROKERS_UNREACHABLE, f"the brokers do not answer: {error}")
    if is_expected(error):
        return Refusal(KUBERNETES_ERROR, str(error))
    return Refusal(INTERNAL_ERROR, f"{type(error).__name__}: {error}")


def retry_pause_s(busy_s: float, failures: int) -> float:
    """Return the pause in seconds after so many consecutive failures."""
    return min(RETRY_S_MAX, busy_s * 2.0 ** min(failures, DOUBLINGS_MAX))
