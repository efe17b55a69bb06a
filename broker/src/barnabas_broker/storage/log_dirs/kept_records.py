"""The acknowledged records that a log dir still has after a start."""

from collections.abc import Container
from enum import Enum

from barnabas_core.topic_partition import TopicPartition


class Kept(Enum):
    """The acknowledged records that a log still has after a start.

    SYNCED means that the log acknowledged only synced records, so that it has all of them unless its disk is an older
    copy. SOME means that acknowledged records may be lost.
    """

    ALL = "all"
    SYNCED = "what was synced"
    SOME = "some"


class KeptRecords:
    """The losses that a start has found in a log dir; they are known once the logs are loaded."""

    def __init__(self) -> None:
        self.may_lack_unsynced = False
        """True if unsynced records from before this start may be lost."""
        self.cut: set[TopicPartition] = set()
        """The logs that are shorter than before a failed sync, because the page cache lost unsynced data."""
        self.promised: Container[TopicPartition] = ()
        """The logs that acknowledged only synced records."""

    def of(self, topic_partition: TopicPartition, log_end_offset: int) -> Kept:
        """Return which acknowledged records a log still has, given the losses that this start has found.

        An empty log counts as SYNCED, because a log syncs its first records before it acknowledges them.
        """
        if topic_partition in self.cut:
            return Kept.SOME
        if not self.may_lack_unsynced:
            return Kept.ALL
        return Kept.SYNCED if topic_partition in self.promised or log_end_offset == 0 else Kept.SOME
