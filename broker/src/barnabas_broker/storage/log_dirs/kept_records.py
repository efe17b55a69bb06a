"""The part of the acknowledged records that a log dir still has after a start."""

from collections.abc import Container
from enum import Enum

from barnabas_core.topic_partition import TopicPartition


class Kept(Enum):
    """The part of the acknowledged records that a log has. SYNCED means all, unless its disk is an older copy."""

    ALL = "all"
    SYNCED = "what was synced"
    SOME = "some"


class KeptRecords:
    """The losses that a start has found in a log dir; known once its logs are loaded."""

    def __init__(self) -> None:
        self.may_lack_unsynced = False
        """True if records written before this start, and not synced, may not have reached the disk."""
        self.cut: set[TopicPartition] = set()
        """Logs that are shorter than before a failed sync, as the page cache lost data that the disk did not take."""
        self.promised: Container[TopicPartition] = ()
        """The logs that acknowledged no record before it was synced."""

    def of(self, topic_partition: TopicPartition, log_end_offset: int) -> Kept:
        """Return how much a log has kept.

        The first records of a log are synced before they are acknowledged, so a log that is empty now had acknowledged
        none.
        """
        if topic_partition in self.cut:
            return Kept.SOME
        if not self.may_lack_unsynced:
            return Kept.ALL
        return Kept.SYNCED if topic_partition in self.promised or log_end_offset == 0 else Kept.SOME
