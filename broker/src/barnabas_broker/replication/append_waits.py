"""The appends to a partition that have no response yet: they wait for the high watermark, or for a sync of the log."""

from barnabas_broker.replication.commit_queue import CommitQueue, Done
from barnabas_core.errors import ApiError


class AppendWaits:
    """The appends without a response yet: with acks=all they wait for replication, otherwise for a sync to disk.

    Appends without acks=all wait only if `flush.messages` requires a sync.
    """

    __slots__ = ("_syncs", "commits")

    def __init__(self, commits: CommitQueue) -> None:
        self.commits = commits
        self._syncs: CommitQueue | None = None

    def wait(self, end_offset: int, done: Done, high_watermark: int, *, all_replicas: bool = True) -> None:
        """Call `done(None)` once the records below `end_offset` may be acknowledged.

        With `all_replicas`, the high watermark must reach `end_offset`; otherwise, the log must be synced up to there.
        """
        if all_replicas:
            self.commits.wait(end_offset, done)
            self.commits.committed(high_watermark)
        else:
            self._syncs = self._syncs or self.commits.another()
            self._syncs.wait(end_offset, done)

    def synced(self, ack_end_offset: int) -> None:
        """Complete the appends that wait for a sync and end at `ack_end_offset` or before."""
        if self._syncs is not None:
            self._syncs.committed(ack_end_offset)

    def fail(self, error: ApiError) -> None:
        """Fail all waiting appends with `error`."""
        self.commits.fail(error)
        if self._syncs is not None:
            self._syncs.fail(error)
