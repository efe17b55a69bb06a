"""The progress of compaction in one log. Pure."""


class CompactionBounds:
    """The offsets below which a log is compacted, or may lack records. A truncation lowers both."""

    __slots__ = ("clean_until", "superseded_until")

    def __init__(self) -> None:
        self.clean_until: int | None = None
        """The end offset of the rounds of compaction so far; None if there was none."""
        self.superseded_until = 0
        """Below this, compaction here or on a leader may have removed records for newer ones that lie below it, too."""

    @property
    def until(self) -> int:
        """A cut below this may remove the newer records for which compaction has removed older ones."""
        return max(self.superseded_until, self.clean_until or 0)

    def superseded_below(self, offset: int) -> None:
        """Note that compaction may have removed records for newer ones, which all lie below `offset`."""
        self.superseded_until = max(self.superseded_until, offset)

    def ended(self, offset: int) -> None:
        """Note the end offset of a finished round, or that of a checkpoint."""
        self.clean_until = offset

    def lower_to(self, log_end_offset: int) -> bool:
        """Lower the offsets to the log's end; return True if the checkpoint may have a higher one."""
        self.superseded_until = min(log_end_offset, self.superseded_until)
        is_lowered = self.clean_until is not None and log_end_offset < self.clean_until
        if is_lowered:
            self.clean_until = log_end_offset
        return is_lowered
