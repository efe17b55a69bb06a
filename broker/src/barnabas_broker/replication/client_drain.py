"""The wait for clients to move to the new leaders: a stopping broker serves until it turns no client away any more.

A client whose connection ends while it takes this broker for a leader connects to it again at once. On Kubernetes that
may happen when the pod's network is gone and kube-proxy still sends its connections there: nothing answers, and the
client waits for `socket.connection.setup.timeout.ms`, 30 s in librdkafka, though the broker is back after a few. A
client that got NOT_LEADER_OR_FOLLOWER looks for the leader, and has no reason to connect here again.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_core.clock import Clock

QUIET_S: Final = 0.5
"""Clients ask for metadata 0.1 s after they were turned away, and fetch again after 0.5 s at most."""
DRAIN_S: Final = 3.0
"""A client that goes on asking is not waited for any longer."""
PAUSE_S: Final = 0.05


class ClientDrain:
    """The tracker of requests that were turned away."""

    def __init__(self, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._turned_away_s = clock.monotonic_s()

    def turned_away(self) -> None:
        """Note a request for a partition that is led elsewhere, or in another epoch than the client's."""
        self._turned_away_s = self._clock.monotonic_s()

    async def until_all_left(self) -> None:
        """Return when nobody was turned away for `QUIET_S`, or after `DRAIN_S`."""
        began_s = now_s = self._clock.monotonic_s()
        while now_s - max(began_s, self._turned_away_s) < QUIET_S and now_s - began_s < DRAIN_S:
            await self._sleep(PAUSE_S)
            now_s = self._clock.monotonic_s()
