"""Time as an argument. The app passes the real one; tests and simulations pass their own."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Clock(Protocol):
    """The wall clock, and the monotonic clock."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch (record timestamps, retention). It may be set, either way."""
        ...

    def monotonic_s(self) -> float:
        """Return the monotonic time in seconds, for leases, timeouts and durations.

        They go on while the machine is suspended. All processes of a machine count the same ones, from its start.
        """
        ...


def monotonic_ms(clock: Clock) -> int:
    """Return the monotonic time in whole milliseconds."""
    return round(clock.monotonic_s() * 1000)


class Cancellable(Protocol):
    """A timer that can be taken back."""

    def cancel(self) -> None:
        """The callback will not run. Harmless when it has run already."""
        ...


class Timers(Protocol):
    """Calls to be made later, on the one event-loop thread."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Cancellable:
        """Run `callback` once, `delay_s` seconds from now."""
        ...

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Run `callback` once this turn of the loop is over."""
        ...


class LoopClock(Clock, Protocol):
    """A clock that coroutines wait by."""

    async def sleep(self, seconds: float) -> None:
        """Wait so many seconds; 0 only ends the turn of the loop."""
        ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Bounds what is awaited inside to so many seconds; TimeoutError after that."""
        ...


Timeout = Callable[[float], AbstractAsyncContextManager[object]]
"""Bounds what is awaited inside to so many seconds; TimeoutError after that. `asyncio.timeout` is one."""
