"""The share of a turn of the event loop that the requests of all connections have together.

A connection that becomes readable when the share is used up leaves the turn. In the next turns the connections that
have left read first, in the order in which they have left.
"""

from collections import deque
from collections.abc import Callable

from barnabas_broker.server.buffers import CallSoon
from barnabas_core.fair_turns import CONNECTION_S
from barnabas_core.loop_turns import LOOP_SHARE


class TurnShare:
    """The connections that have left a turn of the event loop."""

    def __init__(self, call_soon: CallSoon) -> None:
        self._call_soon = call_soon
        self._left: deque[Callable[[], object]] = deque()
        self._is_scheduled = False

    def leave(self, go_on: Callable[[], object]) -> None:
        """Call `go_on` in the next turn of the event loop that has time left."""
        self._left.append(go_on)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._is_scheduled = False
        LOOP_SHARE.extend(CONNECTION_S)  # At least one connection goes on in each turn.
        for _ in range(len(self._left)):
            self._left.popleft()()
            if LOOP_SHARE.is_used_up():
                break
        if self._left:
            self._schedule()
