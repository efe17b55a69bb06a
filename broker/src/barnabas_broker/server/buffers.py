"""A pool of buffers for incomplete requests; a buffer grows only as bytes arrive, and the pool has a size limit.

An idle connection holds no buffer. The size of a buffer depends on the bytes that have arrived, not on the size that
the request announces. Connections that get no buffer wait in a queue; a few are woken per turn of the loop while memory
is free.
"""

from bisect import insort
from collections.abc import Callable
from mmap import mmap
from typing import Final

from barnabas_core.loop_turns import WOKEN_CONNECTIONS

FIRST_BUFFER_BYTES: Final = 64 * 1024
STEP_BYTES: Final = 64 * 1024
"""The unit of buffer sizes; rounded sizes let a later request use the same buffer."""
POOLED_BYTES_MAX: Final = 16 * 1024 * 1024
"""The limit in bytes for free buffers; the smallest are dropped first, because large ones cost the most to create."""
RESERVE_BYTES: Final = 32 * 1024 * 1024
"""The number of bytes above the limit that only small requests may use, so that they need not wait."""

MAPPED_ABOVE_BYTES: Final = 4 * 1024 * 1024
"""The size above which a buffer is mapped memory, whose pages the kernel clears one by one as bytes arrive.

A new bytearray is cleared at once, which takes 0.1 s for 100 MB.
"""

RequestBuffer = bytearray | mmap
CallSoon = Callable[[Callable[[], None]], object]


class BufferPool:
    """A pool of at most `bytes_max` bytes; one connection at a time may exceed the limit, to complete a request."""

    def __init__(self, bytes_max: int, call_soon: CallSoon) -> None:
        self._bytes_max = bytes_max
        self._call_soon = call_soon
        self._free: list[RequestBuffer] = []
        """The free buffers, smallest first."""
        self._free_bytes = 0
        self._waiting: dict[object, Callable[[], None]] = {}
        """The callbacks of the connections that wait for a buffer, in the order of arrival."""
        self._wakes_soon = False
        self._wakes_last = False
        self._overdrawn_by: object | None = None
        self.bytes_in_use = 0
        self.is_exhausted = False
        """True while a connection has made the pool exceed `bytes_max`; no other request should begin then."""

    @property
    def is_short(self) -> bool:
        """True if a connection waits for a buffer, or the next connection that needs one would have to wait."""
        return self.is_exhausted or bool(self._waiting)

    @property
    def has_reserve(self) -> bool:
        """True if a small request may get a buffer, even if the pool then exceeds `bytes_max`."""
        return self.bytes_in_use < self._bytes_max + RESERVE_BYTES

    def acquire(self, needed_bytes: int, have_bytes: int, owner: object, *, must: bool = False) -> RequestBuffer | None:
        """Return a buffer for a request of `needed_bytes`; `have_bytes` of the request have arrived.

        Only one connection at a time may exceed `bytes_max`, the limit of the pool. Return None if `owner` has to wait
        because another connection exceeds the limit. With `must=True` the connection never waits, because bytes that it
        has received would be lost.

        A free buffer is used again if the whole request fits into it; a new buffer may be smaller than the request.
        """
        index = next((index for index, each in enumerate(self._free) if len(each) >= needed_bytes), None)
        size = _size_for(needed_bytes, have_bytes) if index is None else len(self._free[index])
        if self.bytes_in_use + size > self._bytes_max:
            if not must and self._overdrawn_by not in (None, owner):
                return None
            self._overdrawn_by = self._overdrawn_by or owner
            self.is_exhausted = True
        self.bytes_in_use += size
        if index is None:
            return bytearray(size) if size <= MAPPED_ABOVE_BYTES else mmap(-1, size)
        self._free_bytes -= size
        return self._free.pop(index)

    def release(self, buffer: RequestBuffer, owner: object, *, has_another: bool = False) -> None:
        """Take back a buffer of the connection `owner`; wake waiting connections after this turn of the event loop.

        `has_another=True` means that the connection has moved its data to a larger buffer. If `acquire` has let the
        connection exceed the limit of the pool, the connection then keeps this permission.
        """
        self.bytes_in_use -= len(buffer)
        if (self._overdrawn_by is owner and not has_another) or self.bytes_in_use <= self._bytes_max:
            self._overdrawn_by = None
            self.is_exhausted = False
        insort(self._free, buffer, key=len)
        self._free_bytes += len(buffer)
        while self._free_bytes > POOLED_BYTES_MAX:
            self._free_bytes -= len(self._free.pop(0))
        self._wake_soon()

    def when_free(self, owner: object, wake: Callable[[], None]) -> None:
        """Schedule a single call of `wake`, for when memory for a buffer is free."""
        self._waiting[owner] = wake
        self._wake_soon()

    def forget(self, owner: object) -> None:
        """Remove a closed connection from the queue for buffers."""
        self._waiting.pop(owner, None)

    def _wake_soon(self) -> None:
        if self._waiting and not self.is_exhausted and not self._wakes_soon:
            self._wakes_soon = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        """Wake at most WOKEN_CONNECTIONS waiting connections, until one of them has taken the last free memory."""
        self._wakes_soon = False
        for _ in range(WOKEN_CONNECTIONS):
            if self.is_exhausted or not self._waiting:
                break
            self._waiting.pop(self._next_to_wake())()
        self._wake_soon()

    def _next_to_wake(self) -> object:
        """Return alternately the queue's first and last connection, so that slow clients do not delay a quick one."""
        self._wakes_last = not self._wakes_last
        return next(reversed(self._waiting) if self._wakes_last else iter(self._waiting))


def _size_for(needed_bytes: int, have_bytes: int) -> int:
    """Return the size of a new buffer: `needed_bytes`, or `max(FIRST_BUFFER_BYTES, 2 * have_bytes)` if this is less.

    The size is rounded up to a multiple of STEP_BYTES.
    """
    wanted = min(needed_bytes, max(FIRST_BUFFER_BYTES, 2 * have_bytes))
    return -(-wanted // STEP_BYTES) * STEP_BYTES
