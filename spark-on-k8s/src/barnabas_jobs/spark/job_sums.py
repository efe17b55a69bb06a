"""The totals of stages and records over the Spark jobs of a session, which may have millions of Spark jobs."""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from barnabas_jobs.planning.progress import Amount, Seen
from barnabas_jobs.spark.phases import Phase

UNNAMED: Final = Phase("running", None)
STARTING: Final = Phase("starting", None)


class SparkJob(msgspec.Struct, frozen=True):
    """A Spark job as it was last seen."""

    number: int
    ended: bool
    phase: Phase
    stages: Amount
    records: int


class JobSums:
    """The totals over all Spark jobs of one session. To save memory, only the ids of ended jobs are kept."""

    def __init__(self) -> None:
        self._ended: set[int] = set()
        self._records = Counter[Phase]()
        self._stages = Amount(0, 0)
        self._newest = (False, -1, STARTING)

    def has(self, number: int) -> bool:
        """True if the job has ended and is in the totals."""
        return number in self._ended

    def seen(self, jobs: Sequence[SparkJob], listed: Collection[int]) -> Seen:
        """Add the ended jobs to the totals; return the stages, the present phase, and the records read in this phase.

        The stages are those of all Spark jobs of the session. The present phase is that of the newest Spark job that
        belongs to a phase.

        `jobs` are the Spark jobs that are not in the totals yet. `listed` are the ids of the jobs that Spark still
        lists; other ids are forgotten.
        """
        running = [job for job in jobs if not job.ended]
        for job in jobs:
            if job.ended:
                self._add(job)
        self._ended.intersection_update(listed)
        newest = max([self._newest, *map(_place, running)], key=lambda each: each[:2])[2]
        records = self._records[newest] + sum(job.records for job in running if job.phase == newest)
        return Seen(phase=newest.name, stages=_sum(self._stages, running), records=Amount(records, newest.records))

    def _add(self, job: SparkJob) -> None:
        self._ended.add(job.number)
        self._records[job.phase] += job.records
        self._stages = _sum(self._stages, [job])
        self._newest = max(self._newest, _place(job), key=lambda each: each[:2])


def _place(job: SparkJob) -> tuple[bool, int, Phase]:
    return job.phase != UNNAMED, job.number, job.phase


def _sum(stages: Amount, jobs: Sequence[SparkJob]) -> Amount:
    done = stages.done + sum(job.stages.done for job in jobs)
    return Amount(done, (stages.total or 0) + sum(job.stages.total or 0 for job in jobs))
