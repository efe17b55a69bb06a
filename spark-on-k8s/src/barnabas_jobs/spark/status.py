"""The progress of a Spark application, which may have millions of Spark jobs, read from the store of Spark's web UI.

The description and the tag of a Spark job say to which phase of our job it belongs. Usually the progress of a phase is
the number of records that Spark's tasks have read. If a phase measures its progress by other records, such as those
written to Kafka, the phase counts these records itself.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from barnabas_jobs.planning.progress import Amount, Seen

TAG: Final = "barnabas.phase="
DESCRIPTION: Final = "spark.job.description"

_done: Final[dict[str, Callable[[], int]]] = {}
"""The functions that return the number of finished records, by the name of the phase."""


class Phase(NamedTuple):
    """A phase of a job, and the number of records that the phase processes, or None if this number is unknown.

    The name must not contain a comma, because Spark allows no comma in the tag of a job.
    """

    name: str
    records: int | None

    @property
    def tag(self) -> str:
        """The tag of Spark jobs in this phase."""
        return f"{TAG}{'' if self.records is None else self.records}={self.name}"


def of_tag(tag: str) -> Phase | None:
    """Return the phase that the tag of a Spark job names, or None if the tag names no phase."""
    if not tag.startswith(TAG):
        return None
    records, _, name = tag.removeprefix(TAG).partition("=")
    return Phase(name, int(records) if records else None)


def records_done(name: str) -> int | None:
    """Return the number of finished records if the phase counts them itself, or None if Spark counts them.

    Raises JobFailed if the phase's own count fails.
    """
    return _done[name]() if name in _done else None


@contextmanager
def phase(
    spark: SparkSession, name: str, records: int | None = None, done: Callable[[], int] | None = None
) -> Iterator[None]:
    """Mark the Spark jobs that this thread starts in the `with` block as part of the phase.

    Several blocks may belong to one phase. If Spark's own count does not show the finished records, pass as `done` a
    function that returns their number. The thread that watches the job calls `done`.
    """
    if done is not None:
        _done[name] = done
    context = spark.sparkContext
    before = context.getLocalProperty(DESCRIPTION)
    tag = Phase(name, records).tag
    context.setJobDescription(name)
    context.addJobTag(tag)
    try:
        yield
    finally:
        context.removeJobTag(tag)
        context.setJobDescription(before)  # type: ignore[arg-type]  # None removes the property.


class Standing(NamedTuple):
    """The time of an archive's last commit, and how many offsets the archive lacks; each is None if unknown."""

    last_commit_ms: int | None = None
    records_behind: int | None = None


UNKNOWN: Final = Standing()
_asked: Final[list[Callable[[], Standing]]] = []
"""The functions that return the state of an archive, one for each running `with reported(...)` block.

`standing` calls the function of the block that began last.
"""


def standing() -> Standing:
    """Return the last commit and the lag of the archive that this process writes; UNKNOWN if it writes no archive."""
    return _asked[-1]() if _asked else UNKNOWN


@contextmanager
def reported(ask: Callable[[], Standing]) -> Iterator[None]:
    """Let `standing` return the result of `ask`, the state of the archive, while the `with` block runs.

    The thread that reports the progress of the job calls `standing`.
    """
    _asked.append(ask)
    try:
        yield
    finally:
        _asked.remove(ask)


RUNNING: Final = "RUNNING"
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
