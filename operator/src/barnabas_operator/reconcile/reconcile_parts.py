"""Runs the parts of a reconciliation, such as brokers and Topics, even if an earlier part has failed."""

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
