"""The lag of an archive behind its topic, which the archive job shows while it runs."""

from contextlib import suppress
from typing import Final

from barnabas_jobs.jobs.archive_commit import Run
from barnabas_jobs.planning.committed import Committed
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ranges import offsets_behind
from barnabas_jobs.spark.standing import Standing

ASK_S: Final = 5.0


class ArchiveStanding:
    """The lag of this run's archive behind its topic."""

    def __init__(self, job: Run, committed: Committed) -> None:
        self._job = job
        self._committed = committed
        self._asked_s = -ASK_S
        self._behind: int | None = None

    def now(self) -> Standing:
        """Return the time of the archive's last commit, and the archive's lag behind the topic.

        The lag was measured at most ASK_S seconds ago, or earlier if no broker has answered since.
        """
        now_s = self._job.clock()
        if now_s - self._asked_s >= ASK_S:
            self._asked_s = now_s
            with suppress(JobFailed):
                log = self._job.cluster.bounds(self._job.topic)
                self._behind = offsets_behind(self._committed.ends, log)
        return Standing(self._committed.last_commit_ms, self._behind)
