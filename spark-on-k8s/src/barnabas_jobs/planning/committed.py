"""The sums of what a run has committed. A run may make commits for months, and keeps none of their entries."""

from barnabas_jobs.planning.ledger import Entry, LostRange


class Committed:
    """The sums of one run. `lost` grows with its first commit only; `last_commit_ms` may be that of a run before."""

    def __init__(self, last_commit_ms: int | None = None) -> None:
        self.last_commit_ms = last_commit_ms
        self.commits = 0
        self.records = 0
        self.left_out = 0
        self.bytes = 0
        self.mismatched = 0
        self.lost: list[LostRange] = []

    def add(self, entry: Entry) -> None:
        """Add an entry that was committed."""
        self.last_commit_ms = entry.committed_at_ms
        self.commits += 1
        self.records += entry.records
        self.left_out += entry.left_out
        self.bytes += sum(file.bytes for file in entry.files)
        self.mismatched += entry.mismatched
        self.lost += entry.lost
