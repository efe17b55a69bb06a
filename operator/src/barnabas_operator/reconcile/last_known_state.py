"""The last reported state of a Cluster's brokers, and the length of their silence."""

import math
from collections.abc import Callable
from typing import Final

from barnabas_operator.planning.cluster_state import ClusterState

PATIENCE_S: Final = 15.0
"""The grace period: a request to a broker that has just stopped fails after 10 s, and the next asks another one."""


class LastKnownState:
    """The last state of one Cluster; `now_s` is a monotonic clock.

    In every roll a connection breaks, so short silences are ignored.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._state: ClusterState | None = None
        self._missed_since_s: float | None = None
        self._failure = ""

    def heard(self, state: ClusterState) -> None:
        """Note that the brokers answered every request."""
        self._state, self._missed_since_s, self._failure = state, None, ""

    def missed(self, failure: str) -> None:
        """Note that no broker answered; `failure` is the error."""
        self._failure = failure
        if self._missed_since_s is None:  # The first miss: a long round must not use up the grace period.
            self._missed_since_s = self._now_s() if self._state is not None else -math.inf

    @property
    def state(self) -> ClusterState | None:
        """Return the state that brokers last reported; None if they have been silent for too long."""
        return self._state if not self._is_silent else None

    @property
    def silence(self) -> str:
        """Return why no broker has answered for too long; "" if one has."""
        return self._failure if self._is_silent else ""

    @property
    def _is_silent(self) -> bool:
        return self._missed_since_s is not None and self._now_s() - self._missed_since_s > PATIENCE_S
