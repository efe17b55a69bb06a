"""The progress of a Spark application, read from the status store of Spark's web UI."""

from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from barnabas_jobs.planning.progress import Amount, Seen
from barnabas_jobs.spark.job_sums import UNNAMED, JobSums, SparkJob
from barnabas_jobs.spark.phases import of_tag, records_done
from barnabas_jobs.spark.standing import standing

RUNNING: Final = "RUNNING"


class SparkStatus:
    """The progress of one Spark session. Ended Spark jobs are read only once, because a run may have thousands."""

    def __init__(self, spark: SparkSession) -> None:
        store = spark.sparkContext._jsc.sc().statusStore()
        self._store = store
        # Py4J does not fill in a Scala method's default arguments, so Python must pass them.
        self._stage_defaults = [getattr(store, f"stageData$default${number}")() for number in range(2, 6)]
        self._sums = JobSums()

    def seen(self) -> Seen:
        """Return the progress figures of the Spark session and of the archive that it writes.

        The phase is that of the newest Spark job with a phase.
        """
        found = self._store.jobsList(None)
        jobs = {job.jobId(): job for job in (found.apply(index) for index in range(found.size()))}
        changed = [self._job(number, job) for number, job in jobs.items() if not self._sums.has(number)]
        seen = self._sums.seen(changed, jobs)
        done, (last_commit_ms, records_behind) = records_done(seen.phase), standing()
        return msgspec.structs.replace(
            seen,
            records=seen.records if done is None else Amount(done, seen.records.total),
            last_commit_ms=last_commit_ms,
            records_behind=records_behind,
        )

    def _job(self, number: int, job: Any) -> SparkJob:
        tags, stages = job.jobTags(), job.stageIds()
        phases = (of_tag(tags.apply(index)) for index in range(tags.size()))
        return SparkJob(
            number=number,
            ended=job.status().toString() != RUNNING,
            phase=next(filter(None, phases), UNNAMED),
            stages=Amount(job.numCompletedStages(), stages.size() - job.numSkippedStages()),
            records=sum(self._records(stages.apply(index)) for index in range(stages.size())),
        )

    def _records(self, stage: int) -> int:
        """Return how many records the stage's tasks have read or written, whichever number is larger."""
        attempts = self._store.stageData(stage, *self._stage_defaults)
        if not attempts.size():
            return 0
        return max(int(attempts.last().inputRecords()), int(attempts.last().outputRecords()))
