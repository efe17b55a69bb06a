"""A run of months keeps sums of its work, and no object for each Spark job."""

import sys

from barnabas_jobs.planning.progress import Amount, Seen
from barnabas_jobs.spark.status import UNNAMED, JobSums, Phase, SparkJob

RETAINED = 100
"""The number of jobs that Spark reports (`app/connector.py`)."""
ARCHIVING = Phase("archiving", None)


def job(number: int, *, ended: bool = True, phase: Phase = ARCHIVING) -> SparkJob:
    return SparkJob(number=number, ended=ended, phase=phase, stages=Amount(2 if ended else 1, 3), records=10)


def after(sums: JobSums, jobs: int) -> Seen:
    """Return what is seen after this many jobs that Spark reported one after the other."""
    seen = sums.seen([], [])
    for number in range(jobs):
        seen = sums.seen([job(number)], range(max(0, number - RETAINED), number + 1))
    return seen


def size(sums: JobSums) -> int:
    return sum(sys.getsizeof(each) for each in vars(sums).values())


def test_finished_spark_jobs_are_kept_as_sums() -> None:
    few, many = JobSums(), JobSums()
    after(few, 3 * RETAINED)
    seen = after(many, 100 * RETAINED)
    assert size(many) == size(few)
    assert (seen.phase, seen.stages, seen.records) == (
        "archiving",
        Amount(200 * RETAINED, 300 * RETAINED),
        Amount(1000 * RETAINED, None),
    )


def test_a_spark_job_counts_once_while_it_runs_and_after_it_has_ended() -> None:
    sums = JobSums()
    assert sums.seen([job(0, ended=False)], [0]).records.done == 10
    assert not sums.has(0)
    assert sums.seen([job(0)], [0]).records.done == 10
    assert sums.has(0)
    assert sums.seen([], [0]).stages == Amount(2, 3)


def test_the_phase_is_that_of_the_last_spark_job_with_a_name() -> None:
    sums, counting = JobSums(), Phase("counting", 40)
    assert sums.seen([], []).phase == "starting"
    assert sums.seen([job(0, phase=UNNAMED)], [0]).phase == "running"
    assert sums.seen([job(1), job(2, phase=UNNAMED, ended=False)], [0, 1, 2]).phase == "archiving"
    seen = sums.seen([job(2, phase=UNNAMED), job(3, phase=counting, ended=False)], [1, 2, 3])
    assert (seen.phase, seen.records) == ("counting", Amount(10, 40))
    assert sums.seen([job(3, phase=counting), job(4)], [2, 3, 4]).records == Amount(20, None), "job 1 counts"
