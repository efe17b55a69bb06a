"""The limits of size, time and offset within which a segment accepts batches, computed once for many appends."""

from typing import Final, NamedTuple

from barnabas_core.config.log_config import LogConfig


class SegmentRoom(NamedTuple):
    """The limits within which a batch fits into the segment under `config`.

    For a batch beyond these limits, all rules for rolling are checked.
    """

    config: LogConfig | None
    size_bytes_max: int
    timestamp_ms_max: int
    offset_max: int


NO_ROOM: Final = SegmentRoom(None, 0, 0, 0)
"""The limits that no batch fulfils, so that all rules for rolling are checked at the next append."""
