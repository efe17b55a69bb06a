"""The wait of a stopping broker until its clients have moved to the new leaders.

A client whose connection ends reconnects at once if it still takes this broker for a leader. On Kubernetes such a
connection may go to a pod that no longer exists, so the client waits for `socket.connection.setup.timeout.ms`, 30 s in
librdkafka. A client that gets NOT_LEADER_OR_FOLLOWER looks for the new leader instead. So a stopping broker answers
requests until no client sends requests for partitions that have moved.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from barnabas_core.clock import Clock

QUIET_S: Final = 0.5
"""The seconds without a refused request after which a stopping broker assumes that all its clients use the new leaders.

Clients retry within 0.5 s.
"""
DRAIN_S: Final = 3.0
"""The maximum seconds to wait until clients use the new leaders, because a client may never stop its requests."""
PAUSE_S: Final = 0.05


class ClientDrain:
    """The tracker of requests that this broker refused because another broker leads the partition."""

    def __init__(self, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._turned_away_s = clock.monotonic_s()

    def turned_away(self) -> None:
        """Record that a request was refused now: its leader epoch is wrong, or another broker leads the partition."""
        self._turned_away_s = self._clock.monotonic_s()

    async def until_all_left(self) -> None:
        """Return once no request has been refused for `QUIET_S` seconds, or after `DRAIN_S` seconds."""
        began_s = now_s = self._clock.monotonic_s()
        while now_s - max(began_s, self._turned_away_s) < QUIET_S and now_s - began_s < DRAIN_S:
            await self._sleep(PAUSE_S)
            now_s = self._clock.monotonic_s()
