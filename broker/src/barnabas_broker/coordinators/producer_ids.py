"""The producer ids that InitProducerId returns; each id is assigned at most once in the life of the cluster.

Brokers allocate blocks of 1,000 ids in the metadata store. A broker allocates the next block when a tenth of its block
is left, so that a producer rarely waits. The ids that a broker has left when it stops are never assigned.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

_PREFETCH_FRACTION: Final = 10


class ProducerIds:
    """The producer ids that this broker may assign. `allocate` returns a block of unused ids, or raises ApiError."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._prefetch_at = 0
        self._next_block: asyncio.Future[range] | None = None
        self._refilling = asyncio.Lock()

    async def next_id(self) -> int:
        """Return a new producer id. Raises ApiError if a new block is needed and cannot be allocated."""
        if not self._block:
            async with self._refilling:
                await self._refill()
        producer_id, self._block = self._block[0], self._block[1:]
        if len(self._block) == self._prefetch_at and self._next_block is None:
            self._next_block = asyncio.ensure_future(self._allocate())
        return producer_id

    async def _refill(self) -> None:
        while not self._block:
            fetched = self._next_block or asyncio.ensure_future(self._allocate())
            self._next_block = None
            self._block = await fetched
        self._prefetch_at = len(self._block) // _PREFETCH_FRACTION
