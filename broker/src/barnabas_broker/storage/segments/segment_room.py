"""The limits of size, time and offset within which a segment accepts batches, computed once for many appends."""

from typing import Final, NamedTuple

from barnabas_core.config.log_config import LogConfig


class SegmentRoom(NamedTuple):
    """The limits of size, timestamp and offset up to which a batch certainly fits into the segment.

    The limits are computed from `config`. A batch above a limit may still fit, so all rules for rolling the segment are
    then checked.
    """

    config: LogConfig | None
    size_bytes_max: int
    timestamp_ms_max: int
    offset_max: int


NO_ROOM: Final = SegmentRoom(None, 0, 0, 0)
"""A `SegmentRoom` without any room, so that the next append checks all rules for rolling the segment."""
