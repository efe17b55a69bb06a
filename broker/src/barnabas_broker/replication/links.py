"""The interface for connections to other brokers. A broker answers the requests of a connection in order.

`server.peer_link` implements the interface with sockets; tests use a simulated network instead.
"""

from collections.abc import Callable
from typing import Protocol


class Link(Protocol):
    """A connection to one broker."""

    def send(self, frame: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        """Send a framed request, once the connection is established.

        `on_response` is called with the response without its size, after `send` has returned. The callback may keep the
        memoryview, whose memory is not reused while the memoryview or a slice of it exists.
        """
        ...

    def close(self) -> None:
        """Close the connection, if it is open; no callback is called afterwards."""
        ...


class Links(Protocol):
    """The factory of connections to other brokers."""

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Link:
        """Return a connection to the registered address of a broker.

        If the connection fails, `on_closed` is called once with the reason, after `open` or `send` has returned.
        """
        ...
