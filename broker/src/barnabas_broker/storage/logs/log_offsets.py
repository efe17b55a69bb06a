"""The offsets that a log is made with."""

from typing import NamedTuple

import msgspec


class LogOffsets(NamedTuple):
    """Where a log begins, ends, and up to where it is known to be on the disk."""

    start: int
    end: int
    recovery_point: int


class LogAppend(msgspec.Struct, frozen=True, gc=False):
    """Where a batch went. `log_append_time_ms`: -1 unless the broker stamps it. A `duplicate` was there already."""

    base_offset: int
    log_append_time_ms: int
    duplicate: bool
