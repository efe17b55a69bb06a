"""The state that a Cluster's brokers last reported, and the time since they stopped answering."""

import math
from collections.abc import Callable
from typing import Final

from barnabas_operator.planning.cluster_state import ClusterState

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
