"""Memory for requests that have not arrived whole: pooled, grown only as bytes come in, bounded in total.

An idle connection holds none of it. A request that claims a size gets memory for what it has sent so far, not for its
claim. Who finds no room waits in line; everybody in it is woken, a few a turn, as long as there is room.
"""

from bisect import insort
from collections.abc import Callable
from typing import Final

from barnabas_core.fair_turns import WOKEN_CONNECTIONS

FIRST_BUFFER_BYTES: Final = 64 * 1024
STEP_BYTES: Final = 64 * 1024
"""Sizes are whole steps, so that a buffer fits the next request as well."""
POOLED_BYTES_MAX: Final = 16 * 1024 * 1024
"""Kept for the next requests, the largest first: they cost the most to make. The rest goes back to the system."""
RESERVE_BYTES: Final = 32 * 1024 * 1024
"""Beyond the bound, for requests hardly larger than what the kernel holds: they do not wait for large ones."""

CallSoon = Callable[[Callable[[], None]], object]


class BufferPool:
    """Hands out bytearrays up to `bytes_max` in all, and one request beyond, so that somebody gets on."""

    def __init__(self, bytes_max: int, call_soon: CallSoon) -> None:
        self._bytes_max = bytes_max
        self._call_soon = call_soon
        self._free: list[bytearray] = []
        """The smallest first."""
        self._free_bytes = 0
        self._waiting: dict[object, Callable[[], None]] = {}
        """In the order of arrival."""
        self._wakes_soon = False
        self._wakes_last = False
        self._overdrawn_by: object | None = None
        self.bytes_in_use = 0
        self.is_exhausted = False
        """Whether no request should be begun: somebody is beyond the bound already."""

    @property
    def is_short(self) -> bool:
        """Whether somebody waits, or would have to."""
        return self.is_exhausted or bool(self._waiting)

    @property
    def has_reserve(self) -> bool:
        """Whether a small request may go beyond the bound."""
        return self.bytes_in_use < self._bytes_max + RESERVE_BYTES

    def acquire(self, needed_bytes: int, have_bytes: int, owner: object, *, must: bool = False) -> bytearray | None:
        """A buffer for a request of `needed_bytes`, of which `have_bytes` are here; None when the bound is reached.

        The first `owner` that goes beyond the bound may go on; the others wait for it, but not who `must` have it,
        because its bytes would be lost. A pooled buffer that is large enough is used whole; a new one is at most twice
        what has arrived.
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
            return bytearray(size)
        self._free_bytes -= size
        return self._free.pop(index)

    def release(self, buffer: bytearray, owner: object, *, has_another: bool = False) -> None:
        """Take a buffer back; whoever waits is woken when this turn of the loop is over.

        An owner that `has_another` has grown: it may still be the one beyond the bound.
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
        """Call `wake` once when there is room."""
        self._waiting[owner] = wake
        self._wake_soon()

    def forget(self, owner: object) -> None:
        """It is gone: it waits no longer."""
        self._waiting.pop(owner, None)

    def _wake_soon(self) -> None:
        if self._waiting and not self.is_exhausted and not self._wakes_soon:
            self._wakes_soon = True
            self._call_soon(self._wake)

    def _wake(self) -> None:
        """One after the other, for each may take the room that there is."""
        self._wakes_soon = False
        for _ in range(WOKEN_CONNECTIONS):
            if self.is_exhausted or not self._waiting:
                break
            self._waiting.pop(self._next_to_wake())()
        self._wake_soon()

    def _next_to_wake(self) -> object:
        """By turns who has waited longest and who came last: a line of slow clients does not hold up a quick one."""
        self._wakes_last = not self._wakes_last
        return next(reversed(self._waiting) if self._wakes_last else iter(self._waiting))


def _size_for(needed_bytes: int, have_bytes: int) -> int:
    """What is needed, but at most twice what has arrived."""
    wanted = min(needed_bytes, max(FIRST_BUFFER_BYTES, 2 * have_bytes))
    return -(-wanted // STEP_BYTES) * STEP_BYTES
