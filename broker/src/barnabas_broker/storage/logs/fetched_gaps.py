"""Up to where a log lacks records that its leader had removed for newer ones when this log was fetched."""

from barnabas_broker.storage.logs.fetched_batches import has_gap
from barnabas_broker.wire.record_batch import BatchHeader


class FetchedGaps:
    """The newer records lie below `until`, the leader's high watermark. All below it is committed.

    A log that ends below `until` is not whole: a cut there has to make it begin anew. So while there are gaps, the log
    does not grow beyond `checkpointed`, the bound on the disk: a crash cannot forget what is needed.
    """

    __slots__ = ("_found", "before_cut", "checkpointed", "until")

    def __init__(self, checkpointed: int = 0) -> None:
        """`checkpointed` is what a start has found, 0 for nothing."""
        self.until = self.checkpointed = checkpointed
        self.before_cut = 0
        """What was `checkpointed`: it stays on the disk until the cut is there, which a power cut could undo."""
        self._found = checkpointed or -1
        """A log that ends here or below it may have more gaps than this process has seen."""

    def room_for(
        self, headers: list[BatchHeader], log_end_offset: int, leader_high_watermark: int
    ) -> list[BatchHeader]:
        """Those of the leader's batches that the log may take now; none where `raise_checkpointed` is due first."""
        if log_end_offset <= self._found or has_gap(headers, log_end_offset):
            self.until = max(self.until, leader_high_watermark)
        if self.until <= self.checkpointed:
            return headers
        return [header for header in headers if header.last_offset < self.checkpointed]

    def raise_checkpointed(self) -> None:
        """The log takes nothing before this is on the disk."""
        self.checkpointed, self.before_cut = self.until, 0

    def end_at(self, offset: int) -> bool:
        """The log is as its leader's up to its end, `offset`; whether the disk has a bound above that, which must go.

        It was cut, or leads itself: what else was committed is lost.
        """
        is_lowered = offset < self.checkpointed
        if is_lowered:
            self.before_cut = max(self.before_cut, self.checkpointed)
        self.until, self._found = min(offset, self.until), min(offset, self._found)
        self.checkpointed = min(offset, self.checkpointed)
        return is_lowered
