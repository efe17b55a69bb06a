"""The end of an archive, and the totals of what a run commits; a run of months cannot keep its commits."""

import msgspec

from barnabas_jobs.planning.archived import Commit, Head


class LostRange(msgspec.Struct, frozen=True):
    """A range of offsets that the topic deleted before they were archived, as `fail_on_data_loss=false` allows."""

    partition: int
    start: int
    end: int


class Committed:
    """The end of an archive, and the totals of what one run has committed.

    For each partition, `ends` has the offset after the last archived or lost one. `archived_records` counts the records
    of the table, also those of earlier runs. Until the first commit of the run, `last_commit_ms` is the time of the
    last commit of an earlier run.
    """

    def __init__(self, head: Head | None, archived_records: int = 0) -> None:
        self.ends = head.ends if head else {}
        self.archived_records = archived_records
        self.last_commit_ms = head.committed_at_ms if head else None
        self.commits = 0
        self.records = 0
        self.left_out = 0
        self.bytes = 0
        self.mismatched = 0
        self.lost: list[LostRange] = []

    def add(self, commit: Commit, size: int, mismatched: int) -> None:
        """Add a commit; `size` is the size of its data files in bytes."""
        self.ends.update({each.partition: each.end for each in commit.ranges})
        self.archived_records += commit.records
        self.last_commit_ms = commit.committed_at_ms
        self.commits += 1
        self.records += commit.records
        self.left_out += sum(each.left_out for each in commit.ranges)
        self.bytes += size
        self.mismatched += mismatched
        self.lost += [LostRange(each.partition, each.start, each.end) for each in commit.ranges if each.lost]
