"""The sending of requests to another broker, one request at a time."""

import asyncio

from barnabas_broker.replication.links import Links


class RequestLink:
    """A connection to one broker, which the creator has to close."""

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
        """Close the connection."""
        self._link.close()

    def _closed(self, reason: str) -> None:
        self._reason = reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))
