"""How much longer things may take on a machine that has other work."""

import os
from typing import NamedTuple


class Bound(NamedTuple):
    """`seconds_max` is for a machine without other work. Processes share the processors, so more load allows more."""

    seconds_max: float
    load: float
    """Processes that want a processor, as the kernel's mean of a minute says."""
    processors: int

    @property
    def allowed_s(self) -> float:
        """On this machine now."""
        return self.seconds_max * max(1.0, self.load / self.processors)

    def __str__(self) -> str:
        return f"{self.allowed_s:.1f} s ({self.seconds_max:g} s at a load of {self.load:.1f} on {self.processors})"


def bound(seconds_max: float) -> Bound:
    """The bound as the load is now."""
    return Bound(seconds_max, os.getloadavg()[0], os.cpu_count() or 1)


def with_load(seconds_max: float) -> float:
    """The bound on a machine that has as much to do as this one now."""
    return bound(seconds_max).allowed_s
