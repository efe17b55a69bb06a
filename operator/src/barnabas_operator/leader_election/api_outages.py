"""The outages of the API server, as the leader election observes them once a second."""

import math
from collections.abc import Callable
from typing import Final

OUTAGE_S_MIN: Final = 3.0
"""The shortest time without an answer that counts as an outage; shorter ones delay kube-proxy and CoreDNS little."""


class ApiOutages:
    """The outages of the API server. `clock` is a monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at_s: float | None = None
        self._ended_at_s = -math.inf

    @property
    def since_last_s(self) -> float:
        """The seconds since the last outage ended; infinite without an outage."""
        return self._clock() - self._ended_at_s

    def failed(self) -> None:
        """Note that the API server did not answer a request."""
        if self._began_at_s is None:
            self._began_at_s = self._clock()

    def answered(self) -> None:
        """Note that the API server answered a request; an outage ends."""
        began_at_s, self._began_at_s = self._began_at_s, None
        if began_at_s is not None and self._clock() - began_at_s >= OUTAGE_S_MIN:
            self._ended_at_s = self._clock()


NO_OUTAGES: Final = ApiOutages(lambda: 0.0)
