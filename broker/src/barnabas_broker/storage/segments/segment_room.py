"""The bounds up to which a segment takes batches, computed once for many appends."""

from typing import Final, NamedTuple

from barnabas_core.config.log_config import LogConfig


class SegmentRoom(NamedTuple):
    """The bounds within which a batch fits into the segment under `config`; outside, all roll rules are checked."""

    config: LogConfig | None
    size_bytes_max: int
    timestamp_ms_max: int
    offset_max: int


NO_ROOM: Final = SegmentRoom(None, 0, 0, 0)
"""The bounds within which no batch fits, so that all roll rules are checked at the next append."""
