"""The totals of the ledger entries that a run committed; a run of months cannot keep the entries in memory."""

from barnabas_jobs.planning.ledger import Entry, LostRange


class Committed:
    """The totals of what one run has committed.

    Until the first commit of the run, `last_commit_ms` is the time of the last commit of an earlier run.
    """

    def __init__(self, last_commit_ms: int | None = None) -> None:
        self.last_commit_ms = last_commit_ms
        self.commits = 0
        self.records = 0
        self.left_out = 0
        self.bytes = 0
        self.mismatched = 0
        self.lost: list[LostRange] = []

    def add(self, entry: Entry) -> None:
        """Add the records, bytes and lost ranges of a committed ledger entry to the totals."""
        self.last_commit_ms = entry.committed_at_ms
        self.commits += 1
        self.records += entry.records
        self.left_out += entry.left_out
        self.bytes += sum(file.bytes for file in entry.files)
        self.mismatched += entry.mismatched
        self.lost += entry.lost
