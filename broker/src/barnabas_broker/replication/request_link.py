"""Requests to another broker one at a time, each awaited."""

import asyncio

from barnabas_broker.replication.links import Links


class RequestLink:
    """A link to one broker, to be closed by its creator."""

    def __init__(self, links: Links, broker_id: int) -> None:
        self._answer: asyncio.Future[memoryview] | None = None
        self._reason: str | None = None
        self._link = links.open(broker_id, self._closed)

    @property
    def is_broken(self) -> bool:
        """True if the link broke."""
        return self._reason is not None

    async def ask(self, request: bytes | bytearray) -> memoryview:
        """Return the answer to a framed request, without its size. Raises ConnectionError if the link is broken."""
        if self._reason is not None:
            raise ConnectionError(self._reason)
        asked: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._answer = asked
        # The caller may have timed out in this turn of the loop, and close the link in the next.
        self._link.send(request, lambda answer: None if asked.done() else asked.set_result(answer))
        answer = await asked
        self._answer = None
        return answer

    def close(self) -> None:
        """Close the link."""
        self._link.close()

    def _closed(self, reason: str) -> None:
        self._reason = reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))
