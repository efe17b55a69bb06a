"""Time as an argument, for calls that block a thread."""

from typing import Protocol

from barnabas_core.clock import Clock


class BlockingClock(Clock, Protocol):
    """A clock that a thread can wait by."""

    def block(self, seconds: float) -> None:
        """Blocks the thread for so many seconds."""
        ...
