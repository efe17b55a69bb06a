"""The outages of the API server, as the leader election observes them once a second."""

import math
from collections.abc import Callable
from typing import Final

from barnabas_operator.planning.brokers.broker_steps import ROUTES_SETTLE_S

OUTAGE_S_MIN: Final = 3.0
"""The shortest time without an answer that counts as an outage; shorter ones delay kube-proxy and CoreDNS little."""


class ApiOutages:
    """The outages of the API server. `clock` is a monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at_s: float | None = None
        self._routes_settle_at_s = -math.inf

    @property
    def have_settled(self) -> bool:
        """True unless an outage ended less than ROUTES_SETTLE_S ago, so that nodes may know only earlier pods."""
        return self._clock() >= self._routes_settle_at_s

    def failed(self) -> None:
        """Note that the API server did not answer a request."""
        if self._began_at_s is None:
            self._began_at_s = self._clock()

    def answered(self) -> None:
        """Note that the API server answered a request; an outage ends."""
        began_at_s, self._began_at_s = self._began_at_s, None
        if began_at_s is not None and self._clock() - began_at_s >= OUTAGE_S_MIN:
            self._routes_settle_at_s = self._clock() + ROUTES_SETTLE_S


NO_OUTAGES: Final = ApiOutages(lambda: 0.0)
