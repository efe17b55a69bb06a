"""How much longer things may take on a machine that has other work."""

import os


def with_load(seconds_max: float) -> float:
    """The bound on a machine that has as much to do as this one now."""
    return seconds_max * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
