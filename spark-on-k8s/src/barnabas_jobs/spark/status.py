"""What a Spark application has done so far, read from the status store that Spark's own web page reads, too."""

from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from barnabas_jobs.planning.progress import Amount, Seen
from barnabas_jobs.spark.phases import Phase, of_tag

UNNAMED: Final = Phase("running", None)
STARTING: Final = Phase("starting", None)
RUNNING: Final = "RUNNING"


class _Job(msgspec.Struct, frozen=True):
    """One job of Spark's."""

    number: int
    ended: bool
    phase: Phase
    stages: Amount
    records: int


class SparkStatus:
    """Of one session. Jobs that have ended are read once: a run may have thousands."""

    def __init__(self, spark: SparkSession) -> None:
        store = spark.sparkContext._jsc.sc().statusStore()
        self._store = store
        # The default of the Scala method.
        self._stage_defaults = [getattr(store, f"stageData$default${number}")() for number in range(2, 6)]
        self._ended: dict[int, _Job] = {}

    def seen(self) -> Seen:
        """Now. The phase is that of the last job that has a name."""
        jobs = [*self._ended.values(), *self._changed()]
        self._ended.update({job.number: job for job in jobs if job.ended})
        phase = max(jobs, key=lambda job: (job.phase != UNNAMED, job.number)).phase if jobs else STARTING
        records = sum(job.records for job in jobs if job.phase == phase)
        stages = Amount(sum(job.stages.done for job in jobs), sum(job.stages.total or 0 for job in jobs))
        return Seen(phase=phase.name, stages=stages, records=Amount(records, phase.records))

    def _changed(self) -> list[_Job]:
        """The jobs that are not known to have ended."""
        found = self._store.jobsList(None)
        jobs = (found.apply(index) for index in range(found.size()))
        return [self._job(job) for job in jobs if job.jobId() not in self._ended]

    def _job(self, job: Any) -> _Job:
        tags, stages = job.jobTags(), job.stageIds()
        phases = (of_tag(tags.apply(index)) for index in range(tags.size()))
        return _Job(
            number=job.jobId(),
            ended=job.status().toString() != RUNNING,
            phase=next(filter(None, phases), UNNAMED),
            stages=Amount(job.numCompletedStages(), stages.size() - job.numSkippedStages()),
            records=sum(self._records(stages.apply(index)) for index in range(stages.size())),
        )

    def _records(self, stage: int) -> int:
        """What its tasks have read; or written, when they are done, for Spark counts no records of Kafka."""
        attempts = self._store.stageData(stage, *self._stage_defaults)
        if not attempts.size():
            return 0
        return max(int(attempts.last().inputRecords()), int(attempts.last().outputRecords()))
