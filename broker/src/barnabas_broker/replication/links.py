"""The network interface of followers: requests to other brokers, and their answers in the same order.

`server.peer_link` has sockets; a simulated network takes their place in tests.
"""

from collections.abc import Callable
from typing import Protocol


class Link(Protocol):
    """A connection to one broker."""

    def send(self, frame: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        """Send a framed request, once the link is connected.

        `on_response` gets the answer without its size, never from within `send`. It may keep it: that memory is not
        used again before the memoryview and all slices of it are gone.
        """
        ...

    def close(self) -> None:
        """Close the link, if it is open; none of its callbacks is called after that."""
        ...


class Links(Protocol):
    """The opener of links to other brokers."""

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Link:
        """Return a link to a broker at its registered address.

        `on_closed` gets the reason, once and never from within `open` or `send`, if connecting fails or it breaks.
        """
        ...
