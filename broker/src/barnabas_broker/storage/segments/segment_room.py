"""The limits of size, time and offset within which a segment accepts batches, computed once for many appends."""

from typing import Final, NamedTuple


class SegmentRoom(NamedTuple):
    """The limits of size, timestamp and offset up to which a batch certainly fits into the segment.

    A batch above a limit may still fit, so all rules for rolling the segment are then checked.
    """

    size_bytes_max: int
    timestamp_ms_max: int
    offset_max: int


NO_ROOM: Final = SegmentRoom(0, 0, 0)
"""A `SegmentRoom` without any room, so that the next append checks all rules for rolling the segment."""
