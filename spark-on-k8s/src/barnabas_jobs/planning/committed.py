"""The end of an archive, and the totals of what a run commits; a run of months cannot keep the ledger entries."""

from barnabas_jobs.planning.ledger import Entry, LostRange


class Committed:
    """The end of an archive, and the totals of what one run has committed.

    `number` is the number of the next ledger entry. For each partition, `ends` has the offset after the last archived
    or lost one. `archived_records` counts the records of the topic id that earlier runs have archived, too. Until the
    first commit of the run, `last_commit_ms` is the time of the last commit of an earlier run.
    """

    def __init__(
        self, number: int, ends: dict[int, int], archived_records: int = 0, last_commit_ms: int | None = None
    ) -> None:
        self.number = number
        self.ends = ends
        self.archived_records = archived_records
        self.last_commit_ms = last_commit_ms
        self.commits = 0
        self.records = 0
        self.left_out = 0
        self.bytes = 0
        self.mismatched = 0
        self.lost: list[LostRange] = []

    def add(self, entry: Entry) -> None:
        """Add a committed ledger entry."""
        self.number += 1
        self.ends.update({each.partition: each.end for each in entry.ranges})
        self.archived_records += entry.records
        self.last_commit_ms = entry.committed_at_ms
        self.commits += 1
        self.records += entry.records
        self.left_out += entry.left_out
        self.bytes += sum(file.bytes for file in entry.files)
        self.mismatched += entry.mismatched
        self.lost += entry.lost
