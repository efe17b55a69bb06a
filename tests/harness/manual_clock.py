"""The clock of the tests: it stands still until a test moves it."""

from typing import Final

START_MS: Final = 1_700_000_000_000
UP_MS: Final = 1_000_000.0


class ManualClock:
    """A `barnabas_core.clock.Clock`; its machine has been up for UP_MS."""

    __slots__ = ("ahead_ms", "passed_ms")

    def __init__(self) -> None:
        self.passed_ms = UP_MS
        """Since the machine's start; who adds to it lets time pass."""
        self.ahead_ms = 0.0
        """How far somebody has set the wall clock ahead, or back."""

    def now_ms(self) -> int:
        return START_MS + int(self.passed_ms - UP_MS + self.ahead_ms)

    def monotonic_s(self) -> float:
        return self.passed_ms / 1000

    def in_ms(self, seconds: float) -> float:
        """When that is, since the machine's start; without the dust of fractions that a sum of them leaves."""
        return round(self.passed_ms + seconds * 1000, 6)

    def pass_time(self, seconds: float) -> None:
        """For all who look at it."""
        self.passed_ms = self.in_ms(seconds)
