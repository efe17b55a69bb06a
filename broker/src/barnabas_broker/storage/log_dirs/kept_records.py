"""The losses of acknowledged records that are found when the logs of a log dir are loaded."""

from collections.abc import Container
from enum import Enum

from barnabas_core.topic_partition import TopicPartition


class Kept(Enum):
    """The result of the check whether a log has lost acknowledged records.

    ALL means that no record is lost. SYNCED means that the log acknowledged only synced records: no record is lost,
    unless the disk was replaced by an older copy. SOME means that acknowledged records may be lost.
    """

    ALL = "all"
    SYNCED = "what was synced"
    SOME = "some"


class KeptRecords:
    """The losses of acknowledged records in a log dir; they are known once the logs are loaded."""

    def __init__(self) -> None:
        self.may_lack_unsynced = False
        """True if records that an earlier process of this broker wrote without a sync may be lost."""
        self.cut: set[TopicPartition] = set()
        """The logs that became shorter when they were loaded after a failed sync, because unsynced data was lost."""
        self.promised: Container[TopicPartition] = ()
        """The logs that acknowledged only synced records."""

    def of(self, topic_partition: TopicPartition, log_end_offset: int) -> Kept:
        """Return SOME if the log may have lost acknowledged records, SYNCED if only unacknowledged ones, otherwise ALL.

        An empty log counts as SYNCED, because a log syncs its first records before it acknowledges them.
        """
        if topic_partition in self.cut:
            return Kept.SOME
        if not self.may_lack_unsynced:
            return Kept.ALL
        return Kept.SYNCED if topic_partition in self.promised or log_end_offset == 0 else Kept.SOME
