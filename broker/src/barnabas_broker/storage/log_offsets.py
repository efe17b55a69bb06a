"""The offsets that a log is made with."""

from typing import NamedTuple


class LogOffsets(NamedTuple):
    """Where a log begins, ends, and up to where it is known to be on the disk."""

    start: int
    end: int
    recovery_point: int
