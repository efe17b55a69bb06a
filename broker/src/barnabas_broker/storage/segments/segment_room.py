"""The limits of size, time and offset within which a segment accepts batches, computed once for many appends."""

from typing import Final, NamedTuple

from barnabas_core.config.log_config import LogConfig


class SegmentRoom(NamedTuple):
    """The limits within which every batch fits into the segment, as computed from `config`.

    A batch beyond a limit may fit nevertheless, so all rules for rolling the segment are checked for it.
    """

    config: LogConfig | None
    size_bytes_max: int
    timestamp_ms_max: int
    offset_max: int


NO_ROOM: Final = SegmentRoom(None, 0, 0, 0)
"""A `SegmentRoom` without any room, so that the next append checks all rules for rolling the segment."""
