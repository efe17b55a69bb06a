"""What a Cluster's brokers last reported, and for how long they have been silent."""

import math
from collections.abc import Callable
from typing import Final

from barnabas_operator.planning.cluster_state import ClusterState

PATIENCE_S: Final = 15.0
"""A request to a broker that has just gone takes 10 s to fail. The next reconciliation asks another one."""


class LastKnownState:
    """Of one Cluster; `now_s` is a monotonic clock. In every roll a connection breaks: that alone is no news."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._state: ClusterState | None = None
        self._missed_since_s: float | None = None
        self._failure = ""

    def heard(self, state: ClusterState) -> None:
        """Notes that the brokers answered every request."""
        self._state, self._missed_since_s, self._failure = state, None, ""

    def missed(self, failure: str) -> None:
        """Nobody answered; `failure` says what was tried."""
        self._failure = failure
        if self._missed_since_s is None:  # A round over thousands of Topics may take longer than our patience.
            self._missed_since_s = self._now_s() if self._state is not None else -math.inf

    @property
    def state(self) -> ClusterState | None:
        """What they last reported; None if that is too long ago."""
        return self._state if not self._is_silent else None

    @property
    def silence(self) -> str:
        """Why nobody has answered for too long; "" where somebody has."""
        return self._failure if self._is_silent else ""

    @property
    def _is_silent(self) -> bool:
        return self._missed_since_s is not None and self._now_s() - self._missed_since_s > PATIENCE_S
