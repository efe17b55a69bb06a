"""Memory for requests that have not arrived whole: pooled, grown only as bytes come in, bounded in total.

An idle connection holds none of it. A request that claims a size gets memory for what it has sent so far, not for its
claim.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable
from typing import Final

FIRST_BUFFER_BYTES: Final = 64 * 1024
POOLED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Kept for the next requests, the largest first: they cost the most to make. The rest goes back to the system."""


class BufferPool:
    """Hands out bytearrays up to `bytes_max` in all, and one request beyond, so that somebody gets on."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._free: list[bytearray] = []
        """The smallest first."""
        self._free_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._overdrawn_by: object | None = None
        self.bytes_in_use = 0
        self.is_exhausted = False
        """Whether no request should be begun."""

    def acquire(self, needed_bytes: int, have_bytes: int, owner: object) -> bytearray | None:
        """A buffer for a request of `needed_bytes`, of which `have_bytes` are here; None when the bound is reached.

        The first `owner` that goes beyond the bound may go on; the others wait for it. A pooled buffer that is large
        enough is used whole; a new one is at most twice what has arrived.
        """
        index = next((index for index, each in enumerate(self._free) if len(each) >= needed_bytes), None)
        size = _size_for(needed_bytes, have_bytes) if index is None else len(self._free[index])
        if self.bytes_in_use + size > self._bytes_max:
            if self._overdrawn_by not in (None, owner):
                return None
            self._overdrawn_by = owner
        self.bytes_in_use += size
        self.is_exhausted = self.bytes_in_use >= self._bytes_max
        if index is None:
            return bytearray(size)
        self._free_bytes -= size
        return self._free.pop(index)

    def release(self, buffer: bytearray) -> None:
        """Take a buffer back and let the first that waits try again."""
        self.bytes_in_use -= len(buffer)
        self.is_exhausted = self.bytes_in_use >= self._bytes_max
        if self.bytes_in_use < self._bytes_max:
            self._overdrawn_by = None
        insort(self._free, buffer, key=len)
        self._free_bytes += len(buffer)
        while self._free_bytes > POOLED_BYTES_MAX:
            self._free_bytes -= len(self._free.pop(0))
        if self._waiting:
            self._waiting.popleft()()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call `callback` once when a buffer comes back."""
        self._waiting.append(callback)


def _size_for(needed_bytes: int, have_bytes: int) -> int:
    """The next power of two: what is needed, but at most twice what has arrived."""
    wanted = min(needed_bytes, max(FIRST_BUFFER_BYTES, 2 * have_bytes))
    return max(FIRST_BUFFER_BYTES, 1 << (wanted - 1).bit_length())
