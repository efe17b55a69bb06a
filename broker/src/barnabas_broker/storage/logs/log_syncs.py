"""The recovery point of a log, and the records that have to be synced before they are acknowledged."""

from barnabas_broker.storage.segments.segment import Segment
from barnabas_broker.storage.segments.segments import Segments
from barnabas_core.config.log_config import LONG_MAX


class LogSyncs:
    """The state of a log's syncs. Everything below `recovery_point` is on the disk; `log_end` is the log end offset."""

    __slots__ = (
        "_flush_messages",
        "_is_promised",
        "_segments",
        "_synced_segment",
        "_under_way",
        "due_at",
        "on_disk_until",
        "recovery_point",
        "unsynced_from",
    )

    def __init__(self, segments: Segments, recovery_point: int) -> None:
        self.recovery_point = recovery_point
        self.on_disk_until = recovery_point
        """The end offset of the records that may be on the disk.

        A power failure may restore these records after a truncation.
        """
        self.unsynced_from: int | None = None
        """The first offset to sync before an acknowledgement if `flush.messages` is reached, else None."""
        self.due_at = recovery_point
        """The log end offset from which on records have to be synced before they are acknowledged."""
        self._flush_messages = LONG_MAX
        self._is_promised = False
        self._segments = segments
        self._synced_segment: Segment | None = None
        """The last segment whose sync has begun; None while no sync is running."""
        self._under_way = 0

    def configure(self, flush_messages: int) -> None:
        """Apply a new value of `flush.messages`."""
        self._flush_messages = flush_messages
        self._bound()

    def _bound(self) -> None:
        """Compute `due_at`. The first records of a log are always synced before they are acknowledged.

        A log that is empty after a power failure has therefore lost no acknowledged record. A log that was emptied
        counts as new, because a power failure may lose the name of its first segment.
        """
        is_bound = self._is_promised or self.recovery_point <= self._segments.first.base_offset
        self.due_at = self.recovery_point + (1 if is_bound else self._flush_messages)

    def promise(self) -> None:
        """Promise to sync records before they are acknowledged, because a checkpoint says so or may say so soon."""
        self._is_promised = True
        self._bound()

    def withdraw_promise(self) -> None:
        """Withdraw the promise to sync, because the checkpoint no longer lists the log.

        Called in a thread; the next sync updates `due_at`.
        """
        self._is_promised = False

    def wait_from(self, offset: int) -> None:
        """Acknowledge nothing from `offset` on before the next sync."""
        if self.unsynced_from is None:
            self.unsynced_from = offset

    def begun(self, end: int) -> None:
        """Note that a sync of everything below `end` has begun; it may also write records appended meanwhile."""
        self.on_disk_until = max(self.on_disk_until, end)
        self._under_way += 1
        if end > self._segments.active.base_offset:
            self._synced_segment = self._segments.active

    def ended(self, log_end: int) -> None:
        """Note that a sync has ended."""
        self._under_way -= 1
        if not self._under_way:
            self.on_disk_until, self._synced_segment = self._may_be_on_disk_until(log_end), None

    def _may_be_on_disk_until(self, log_end: int) -> int:
        return log_end if self._segments.active is self._synced_segment else self.on_disk_until

    def synced_until(self, offset: int, log_end: int) -> None:
        """Raise the recovery point to `offset`, below which everything is on the disk."""
        self.recovery_point = max(self.recovery_point, offset)
        self._moved(log_end)

    def all_synced(self, log_end: int) -> None:
        """Note that the whole log is on the disk."""
        self.recovery_point = self.on_disk_until = log_end
        self._moved(log_end)

    def recovered(self, recovery_point: int, log_end: int) -> None:
        """Set the recovery point after a crash. All data up to the log's end may be on the disk."""
        self.recovery_point, self.on_disk_until = recovery_point, log_end

    def end_at(self, offset: int, log_end: int) -> bool:
        """Lower all offsets from `log_end` to `offset`; return True if removed records may be on the disk."""
        may_be_on_disk = offset < max(self.recovery_point, self._may_be_on_disk_until(log_end))
        self.recovery_point = min(offset, self.recovery_point)
        self.on_disk_until = min(offset, self.on_disk_until)
        self._moved(offset)
        return may_be_on_disk

    def _moved(self, log_end: int) -> None:
        self._bound()
        if self.unsynced_from is None:
            return
        if log_end < self.due_at:
            self.unsynced_from = None
        else:
            self.unsynced_from = min(max(self.unsynced_from, self.recovery_point), log_end)
