"""A clock that stands still until a test moves it."""

from typing import Final

START_MS: Final = 1_700_000_000_000
UP_MS: Final = 1_000_000.0


class ManualClock:
    """A `barnabas_core.clock.Clock`; its machine has been up for UP_MS."""

    __slots__ = ("ahead_ms", "passed_ms")

    def __init__(self) -> None:
        self.passed_ms = UP_MS
        """The time since the machine's start; a test adds to it to let time pass."""
        self.ahead_ms = 0.0
        """The time by which the wall clock was set ahead; below 0 it was set back."""

    def now_ms(self) -> int:
        return START_MS + int(self.passed_ms - UP_MS + self.ahead_ms)

    def monotonic_s(self) -> float:
        return self.passed_ms / 1000

    def in_ms(self, seconds: float) -> float:
        """Return the time since the machine's start in so many seconds, rounded: sums of floats carry small errors."""
        return round(self.passed_ms + seconds * 1000, 6)

    def pass_time(self, seconds: float) -> None:
        """Let time pass for everybody who uses this clock."""
        self.passed_ms = self.in_ms(seconds)
