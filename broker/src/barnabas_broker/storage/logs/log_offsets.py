"""The offsets that a log is made with."""

from typing import NamedTuple

import msgspec


class LogOffsets(NamedTuple):
    """The start and the end of a log, and the offset below which all is known to be on the disk."""

    start: int
    end: int
    recovery_point: int


class LogAppend(msgspec.Struct, frozen=True, gc=False):
    """The result of an append.

    `log_append_time_ms` is -1 unless the broker stamps it. A `duplicate` was in the log already.
    """

    base_offset: int
    log_append_time_ms: int
    duplicate: bool
