"""Time as an argument. The app passes the real one; tests and simulations pass their own."""

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What time it is."""

    def now_ms(self) -> int:
        """Wall-clock time, milliseconds since the epoch (record timestamps, retention)."""
        ...

    def monotonic_s(self) -> float:
        """Seconds that never go back (timeouts, durations)."""
        ...


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

    def call_soon(self, callback: Callable[[], object]) -> Cancellable:
        """Run `callback` once this turn of the loop is over."""
        ...
