"""A clock whose method `block` blocks the calling thread."""

from typing import Protocol

from barnabas_core.clock import Clock


class BlockingClock(Clock, Protocol):
    """A clock with which a thread can wait."""

    def block(self, seconds: float) -> None:
        """Block the thread for some seconds."""
        ...
