"""The offsets of a log."""

from typing import NamedTuple

import msgspec


class LogOffsets(NamedTuple):
    """The start and end offset of a log, and the recovery point, below which everything is on the disk."""

    start: int
    end: int
    recovery_point: int


class LogAppend(msgspec.Struct, frozen=True, gc=False):
    """The result of an append: the offset of the batch's first record, and the offset after its last record.

    `log_append_time_ms` is -1 unless the broker sets the timestamps. `duplicate` is True if the log already had the
    batch.
    """

    base_offset: int
    end_offset: int
    log_append_time_ms: int
    duplicate: bool
