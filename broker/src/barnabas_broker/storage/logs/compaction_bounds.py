"""The progress of compaction in one log, as offsets."""


class CompactionBounds:
    """The offsets below which compaction has, or may have, removed records of a log.

    The segments below `clean_until` are compacted. Records below `superseded_until` may be missing, too: an unfinished
    compaction has removed them, or the leader had removed them before this broker fetched its log.
    """

    __slots__ = ("clean_until", "superseded_until")

    def __init__(self) -> None:
        self.clean_until: int | None = None
        """The end offset of the log's last finished compaction; None if there was none."""
        self.superseded_until = 0
        """The offset below which compaction, on this broker or on a leader, may have removed records.

        The newer records that superseded the removed ones are below this offset, too.
        """

    @property
    def until(self) -> int:
        """The offset below which a truncation may lose all records of a key.

        Compaction has removed the older records of the key, and the truncation would remove the newest one.
        """
        return max(self.superseded_until, self.clean_until or 0)

    def superseded_below(self, offset: int) -> None:
        """Raise `superseded_until` to `offset`, because compaction may have removed records.

        The newer records with the same keys are below `offset`.
        """
        self.superseded_until = max(self.superseded_until, offset)

    def ended(self, offset: int) -> None:
        """Set `clean_until` to `offset`.

        The offset is the end offset of a compaction that has finished now or, when the log is loaded, the offset in the
        checkpoint.
        """
        self.clean_until = offset

    def lower_to(self, log_end_offset: int) -> bool:
        """Lower `superseded_until` and `clean_until` to the log end offset.

        Return True if `clean_until` was lowered. The offset in the checkpoint file may then be too high.
        """
        self.superseded_until = min(log_end_offset, self.superseded_until)
        is_lowered = self.clean_until is not None and log_end_offset < self.clean_until
        if is_lowered:
            self.clean_until = log_end_offset
        return is_lowered
