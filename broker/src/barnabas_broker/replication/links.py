"""The interface for connections to other brokers. A broker answers the requests of a connection in order.

`server.peer_link` implements the interface with sockets; tests use a simulated network instead.
"""

import asyncio
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


class RequestLink:
    """A connection to one broker that sends one request at a time; the creator has to close it."""

    def __init__(self, links: Links, broker_id: int) -> None:
        self._answer: asyncio.Future[memoryview] | None = None
        self._reason: str | None = None
        self._link = links.open(broker_id, self._closed)

    @property
    def is_broken(self) -> bool:
        """True if the connection has failed."""
        return self._reason is not None

    async def ask(self, request: bytes | bytearray) -> memoryview:
        """Send a framed request; return the response without its size.

        Raises ConnectionError if the connection fails.
        """
        if self._reason is not None:
            raise ConnectionError(self._reason)
        asked: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._answer = asked
        # The future is done if the caller timed out and has not closed the connection yet.
        self._link.send(request, lambda answer: None if asked.done() else asked.set_result(answer))
        answer = await asked
        self._answer = None
        return answer

    def close(self) -> None:
        """Close the connection; a request that waits for its response raises ConnectionError."""
        self._link.close()
        self._closed("the connection was closed")
        if self._answer is not None and self._answer.done() and not self._answer.cancelled():
            self._answer.exception()  # The caller may be gone; asyncio then reports no exception that nobody retrieved.

    def _closed(self, reason: str) -> None:
        self._reason = reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))
