"""Tasks that pass records to Python functions: a task for each partition of a topic, in the order of offsets."""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas_jobs.planning.errors import JobFailed, Refused

ONE_TASK_EACH: Final = {"spark.speculation": "false"}
"""The setting that keeps Spark from starting a second task of a partition while the first one still writes."""
GROUP: Final = "spark.jobGroup.id"
POLL_S: Final = 0.5
TASK_ENDS_SECONDS_MAX: Final = 300.0
"""The longest time to wait until the running Spark tasks have ended.

Spark needs less time than this to notice that an executor is lost (`spark.network.timeout`).
"""


class Written(NamedTuple):
    """The numbers of records of a partition that a task wrote, and that were there before."""

    partition: int
    written: int
    there: int


class Writer(Protocol):
    """The function that writes the records of a task; Spark sends it to the executors."""

    def __call__(self, records: Iterable[Any], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Write the records of one partition, and yield one tuple with the fields of `Written`.

        The records are sorted by offset. `is_again` is true if an earlier attempt of the task may have written some of
        the records.
        """


def write_by_partition(
    spark: SparkSession, records: Mapping[int, Iterable[Any]], sizes: Mapping[int, int], writer: Writer
) -> list[Written]:
    """Write the records of each partition in a task of its own, and return what the tasks did.

    `records` reads the records of a partition, in the task. `sizes` is their number: the largest partition begins
    first, so that no long task is left to run alone at the end. Spark moves no record between executors, so a lost
    executor loses only its own tasks. After a failure, wait until no task runs any more, so that the caller can safely
    start new tasks.
    """
    tasks = [records[each] for each in sorted(sizes, key=lambda each: -sizes[each])]
    if not tasks:
        return []
    with _all_tasks_ended(spark):
        each_alone = spark.sparkContext.parallelize(tasks, len(tasks))
        return [Written(*counts) for counts in each_alone.mapPartitions(partial(_task, writer)).collect()]


def check_one_task_each(spark: SparkSession) -> None:
    """Raise Refused if Spark's settings allow a second task of a partition while the first task still writes."""
    conf = spark.sparkContext.getConf()
    for name, allowed in ONE_TASK_EACH.items():
        value = conf.get(name, allowed)  # What is allowed is Spark's default.
        if value != allowed:
            raise Refused(
                f"{name}={value}: Spark may start a second task while the first task still writes, and both would "
                f"write the same records; start the Spark session of the restore with {name}={allowed}"
            )


@contextmanager
def _all_tasks_ended(spark: SparkSession) -> Iterator[None]:
    """Wait, if the `with` block fails, until no task that the block started runs any more.

    Spark itself asks these tasks to end, but does not wait for their end. Raises JobFailed if a task does not end.
    """
    context, group = spark.sparkContext, f"barnabas-{uuid.uuid4().hex}"
    before = context.getLocalProperty(GROUP)
    context.setLocalProperty(GROUP, group)
    try:
        yield
    except (PySparkException, Py4JJavaError):
        _await_no_task(context, group)
        raise
    finally:
        context.setLocalProperty(GROUP, before)  # type: ignore[arg-type]  # None removes the property.


def _await_no_task(context: SparkContext, group: str) -> None:
    tracker, deadline_s = context.statusTracker(), time.monotonic() + TASK_ENDS_SECONDS_MAX
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(group)))
    stages = [stage for job in jobs for stage in job.stageIds]
    while any(info.numActiveTasks for info in filter(None, map(tracker.getStageInfo, stages))):
        if time.monotonic() > deadline_s:
            raise JobFailed(
                f"tasks still run {TASK_ENDS_SECONDS_MAX:.0f} s after their stage failed; run the job again"
            )
        time.sleep(POLL_S)


def _task(writer: Writer, records: Iterable[Iterable[Any]]) -> Iterator[tuple[int, int, int]]:
    context = TaskContext.get()
    is_again = context is not None and context.attemptNumber() > 0
    for each in records:
        yield from writer(each, is_again=is_again)
