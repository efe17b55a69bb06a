"""Failures of Spark as one sentence each, for people who run jobs, and the tasks that handle partitions."""

import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from barnabas_jobs.planning.errors import JobFailed, Refused

MORE_MEMORY: Final = (
    "set --conf spark.driver.memory=4g, or spark.executor.memory if executors run elsewhere; records of "
    "tens of megabytes need gigabytes of memory"
)
FILE: Final = "a data file of the archive cannot be read; restore the file that Spark names from a backup"
KNOWN: Final[Sequence[tuple[str, str]]] = (
    ("No space left on device", "the disk is full (No space left on device); free some space, and run the job again"),
    ("OutOfMemoryError", f"Java has too little memory; {MORE_MEMORY}"),
    ("Some data may have been lost", "records were deleted from the topic while the job read it; run the job again"),
    ("OffsetOutOfRangeException", "records were deleted from the topic while the job read it; run the job again"),
    (
        "overflows when converting to Spark's",
        "a record's timestamp is after the year 294246, because its producer does not write milliseconds",
    ),
    ("UnknownTopicOrPartitionException", "the topic, or a partition of it, was deleted while the job read it"),
    ("timestamp before the year 1900", "Spark or the table would change the timestamp, so the record is not archived"),
    (
        "does not fit the schema",
        "a value does not fit the schema; on_mismatch=keep archives such records with null in the column json",
    ),
    ("FAILED_READ_FILE", FILE),
    ("is not a Parquet file", FILE),
    ("Failed to find data source: kafka", "the session has no Kafka connector; see `barnabas jobs fetch-jars`"),
)
OURS: Final = re.compile(r"^barnabas_jobs\.[\w.]+: (.+)$", re.MULTILINE)
"""A pattern for the last line of a Python worker's traceback, if this package defines the exception."""
LOST: Final = re.compile(r"An error occurred while calling \S+")
LINES_MAX: Final = 3


@contextmanager
def spark_failures(doing: str) -> Iterator[None]:
    """Turn failures of Spark in the `with` block into JobFailed, also if Spark's Java process has ended.

    The message has `doing`, which says what the job was doing, an explanation if the failure is in KNOWN, and Spark's
    own words.
    """
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        if _is_of_lost_java(error):
            raise JobFailed(
                f"{doing}: Spark's Java process has ended; its last output gives the reason. If the reason is "
                f"OutOfMemoryError, {MORE_MEMORY}"
            ) from error
        text = _text(error)
        known = next((meaning for sign, meaning in KNOWN if sign in text), None)
        message = f"{doing}: {known}. Spark says: {_cause(text)}" if known else f"{doing}: {_cause(text)}"
        raise JobFailed(message) from error


def _is_of_lost_java(error: Exception) -> bool:
    """True if the error shows that Spark's Java process has ended.

    The first call after the process has ended raises an error without a Java stack trace. Later calls fail to connect.
    """
    is_lost = type(error) is Py4JError and LOST.fullmatch(str(error)) is not None
    return is_lost or isinstance(error, Py4JNetworkError | ConnectionError)


def _text(error: Exception) -> str:
    """Return all messages, from the failure to its first cause."""
    java = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    texts = [str(error)]
    while java is not None:
        texts.append(str(java))
        java = java.getCause()
    return "\n".join(texts)


def _cause(text: str) -> str:
    """Return the lines of Spark's error text that name the cause, without stack traces.

    If the text has the message of an exception of this package, return only this message. Otherwise return the last
    lines that contain a text from KNOWN, or simply the last lines if none does.
    """
    if ours := OURS.search(text):
        return ours[1]
    lines = [
        line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("at ", "..."))
    ]
    signs = [line for line in lines for sign, _ in KNOWN if sign in line]
    return " ".join(dict.fromkeys((signs or lines)[-LINES_MAX:]))


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
