"""The clock and timer interfaces; the broker uses the machine's clocks, and tests and simulations replace them."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic clock."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the Unix epoch; an administrator can set the clock back."""
        ...

    def monotonic_s(self) -> float:
        """Return the monotonic time in seconds, for leases, timeouts and durations.

        The clock runs on while the machine is suspended. It counts from the start of the machine, so all processes of a
        machine agree.
        """
        ...


def monotonic_ms(clock: Clock) -> int:
    """Return the monotonic time in whole milliseconds."""
    return round(clock.monotonic_s() * 1000)


class Cancellable(Protocol):
    """A timer that can be cancelled."""

    def cancel(self) -> None:
        """Prevent the callback from running; do nothing if it has already run."""
        ...


class Timers(Protocol):
    """The timers of an event loop."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Cancellable:
        """Call `callback` once, in `delay_s` seconds."""
        ...

    def call_soon(self, callback: Callable[[], object]) -> object:
        """Call `callback` once, after this turn of the event loop."""
        ...


class LoopClock(Clock, Protocol):
    """A clock that also lets coroutines wait."""

    async def sleep(self, seconds: float) -> None:
        """Wait for the given number of seconds; 0 waits for the next turn of the event loop."""
        ...

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Return a context that raises TimeoutError if its body takes longer than the given number of seconds."""
        ...


Timeout = Callable[[float], AbstractAsyncContextManager[object]]
"""A function that returns a context with a time limit in seconds, such as `asyncio.timeout`."""
