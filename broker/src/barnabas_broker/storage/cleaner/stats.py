"""The figures of compaction for the metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class CleanerStats:
    """The figures of compaction since the broker started; percentages are from 0 to 100."""

    rounds: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    records_without_key: int = 0
    batches_not_understood: int = 0
    max_dirty_percent: float = 0.0
    """The dirty percentage of the dirtiest log at the last check."""
    recopy_percent: float = 0.0
    """The bytes written as a percentage of the bytes read, in the last compaction of a log."""
    map_utilization_percent: float = 0.0
    """The percentage of the key map that the last compaction of a log used."""
    last_round_s: float = 0.0
    longest_round_s: float = 0.0
    last_look_s: float | None = None
    """The monotonic time (s) of the last search for the dirtiest log; None before the first search."""
