"""The wait for clients to move to the new leaders: a stopping broker serves until no client asks for moved partitions.

A client reconnects at once if its connection ends while it still believes that this broker leads a partition. On
Kubernetes the pod's network may be gone by then, and kube-proxy still sends connections there: nothing answers, and the
client waits for `socket.connection.setup.timeout.ms`, 30 s in librdkafka, although the broker restarts within seconds.
A client that got NOT_LEADER_OR_FOLLOWER looks for the new leader, and has no reason to connect here again.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_core.clock import Clock

QUIET_S: Final = 0.5
"""Clients ask for metadata 0.1 s after a refusal, and fetch again after 0.5 s at most."""
DRAIN_S: Final = 3.0
"""The longest wait, for a client may never stop asking."""
PAUSE_S: Final = 0.05


class ClientDrain:
    """The tracker of requests that were refused because another broker leads the partition."""

    def __init__(self, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._turned_away_s = clock.monotonic_s()

    def turned_away(self) -> None:
        """Note a refused request: another broker leads its partition, or the client's leader epoch is not current."""
        self._turned_away_s = self._clock.monotonic_s()

    async def until_all_left(self) -> None:
        """Return when no request was refused for `QUIET_S`, or after `DRAIN_S`."""
        began_s = now_s = self._clock.monotonic_s()
        while now_s - max(began_s, self._turned_away_s) < QUIET_S and now_s - began_s < DRAIN_S:
            await self._sleep(PAUSE_S)
            now_s = self._clock.monotonic_s()
