"""Pass the records of a data frame to a Python function: each topic partition has a task, in the order of offsets."""

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark import SparkContext, TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.spark.records import settings

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = ("partition", "timestamp_ms", "key", "value", "headers")
COUNTS: Final = "partition int, written long, there long"
BATCH: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
"""The settings for Arrow batches: some thousand rows, fewer if they are large, because a task holds a batch in memory.

After each row, Spark asks the Arrow vector of each column for its size. For a column of lists, the vector then walks
over all nulls at its end, which is slow, so lists must not be null.
"""
ONE_TASK_EACH: Final = {"spark.speculation": "false", "spark.stage.maxConsecutiveAttempts": "1"}
"""The settings that keep Spark from starting a second task of a partition while the first one still writes.

Spark would start a second task if the first one were slow (speculation). Spark would also start one when it repeats a
stage whose shuffle data was lost with an executor. Then old tasks on other executors keep running, and attempt numbers
start at 0 again, so a second task could not know of the first one.
"""
SPARK_DEFAULTS: Final = {"spark.speculation": "false", "spark.stage.maxConsecutiveAttempts": "4"}
GROUP: Final = "spark.jobGroup.id"
POLL_S: Final = 0.5
TASK_ENDS_SECONDS_MAX: Final = 300.0
"""The longest time to wait until the running Spark tasks have ended.

Spark needs less time than this to notice that an executor is lost (`spark.network.timeout`).
"""


class Writer(Protocol):
    """The function that writes the records of a task; Spark sends it to the executors."""

    def __call__(self, records: Iterable[Any], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Write the records of one partition, and yield one row with the columns COUNTS.

        The records are tuples of COLUMNS, sorted by offset. `is_again` is true if an earlier attempt of the task may
        have written some of the records.
        """


def write_by_partition(records: DataFrame, sizes: Mapping[int, int], writer: Writer) -> list[Row]:
    """Write records in one task for each partition, and return a row of COUNTS for each partition.

    `sizes` is the number of records of each partition. The largest partition begins first, so that no long task is left
    to run alone at the end. A task has only records of one partition, so Spark needs to sort them only by offset. After
    a failure, wait until no task runs any more, so that the caller can safely start new tasks.
    """
    tasks = {each: task for task, each in enumerate(sorted(sizes, key=lambda each: -sizes[each]))}
    by_partition = F.lit([tasks.get(each, 0) for each in range(max(sizes, default=0) + 1)])
    filled = records.withColumn("headers", F.coalesce("headers", F.array()))  # Lists must not be null; see BATCH.
    alone = filled.select("offset", *COLUMNS).repartitionById(max(1, len(tasks)), by_partition[F.col("partition")])
    ordered = alone.sortWithinPartitions("offset").select(*COLUMNS)
    with settings(records.sparkSession, BATCH), _all_tasks_ended(records.sparkSession):
        return ordered.mapInArrow(partial(_task, writer), COUNTS).collect()


def check_one_task_each(spark: SparkSession) -> None:
    """Raise Refused if Spark's settings allow a second task of a partition while the first task still writes."""
    conf = spark.sparkContext.getConf()
    for name, allowed in ONE_TASK_EACH.items():
        value = conf.get(name, SPARK_DEFAULTS[name])
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
    except PySparkException:
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


def _task(writer: Writer, batches: "Iterable[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow

    context = TaskContext.get()
    is_again = context is not None and context.attemptNumber() > 0
    records = chain.from_iterable(map(_records, batches))
    for partition, written, there in writer(records, is_again=is_again):
        yield pyarrow.RecordBatch.from_pydict(
            {"partition": pyarrow.array([partition], pyarrow.int32()), "written": [written], "there": [there]}
        )


def _records(batch: "pyarrow.RecordBatch") -> Iterator[tuple[Any, ...]]:
    """Yield the rows as tuples, built from columns, since rows as dicts take ten times as long."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
