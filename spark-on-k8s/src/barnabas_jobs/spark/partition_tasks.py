"""Records of a data frame to a function of Python: each partition of the topic in one task, in the order of offsets."""

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
from pyspark.sql import functions as F  # noqa: N812  # Spark's own convention.

from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.spark.records import settings

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = ("partition", "timestamp_ms", "key", "value", "headers")
COUNTS: Final = "partition int, written long, there long"
# Rows come as Arrow, some thousand together; of large records fewer, for a task has them all in memory. To count bytes
# Spark asks all vectors for their size after each row, and one of lists goes through all nulls at its end again each
# time: lists must not be null.
BATCH: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}
ONE_TASK_EACH: Final = {"spark.speculation": "false", "spark.stage.maxConsecutiveAttempts": "1"}
"""Settings without which Spark starts a second task of a partition while the first still writes: beside a slow one, or
in a stage that it starts again because a dead executor took its part of the shuffle along. Tasks on other executors go
on then, and the attempts of the new stage count from 0.
"""
SPARK_DEFAULTS: Final = {"spark.speculation": "false", "spark.stage.maxConsecutiveAttempts": "4"}
GROUP: Final = "spark.jobGroup.id"
POLL_S: Final = 0.5
TASK_ENDS_SECONDS_MAX: Final = 300.0
"""Longer than Spark takes to notice that an executor is gone (`spark.network.timeout`, 120 s)."""


class Writer(Protocol):
    """The work of a task; it is sent to the executors."""

    def __call__(self, records: Iterable[Any], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Write tuples of COLUMNS, in the order of offsets, and return the COUNTS of their partition.

        `is_again`: a task before this one has begun with the same records.
        """


def write_by_partition(records: DataFrame, sizes: Mapping[int, int], writer: Writer) -> list[Row]:
    """Write records in tasks and return their COUNTS. `sizes`: the number of records of each partition.

    Each has a task of its own. The largest is the first to begin, for what runs last runs alone. By one number, which
    all of a task's records have in the same place, Spark sorts without comparing rows.
    """
    tasks = {each: task for task, each in enumerate(sorted(sizes, key=lambda each: -sizes[each]))}
    by_partition = F.lit([tasks.get(each, 0) for each in range(max(sizes, default=0) + 1)])
    filled = records.withColumn("headers", F.coalesce("headers", F.array()))  # See BATCH.
    alone = filled.select("offset", *COLUMNS).repartitionById(max(1, len(tasks)), by_partition[F.col("partition")])
    ordered = alone.sortWithinPartitions("offset").select(*COLUMNS)
    with settings(records.sparkSession, BATCH), _all_tasks_ended(records.sparkSession):
        return ordered.mapInArrow(partial(_task, writer), COUNTS).collect()


def check_one_task_each(spark: SparkSession) -> None:
    """Raise Refused if Spark may start a second task of a partition beside one that writes."""
    conf = spark.sparkContext.getConf()
    for name, allowed in ONE_TASK_EACH.items():
        value = conf.get(name, SPARK_DEFAULTS[name])
        if value != allowed:
            raise Refused(
                f"{name}={value}: Spark may start a second task beside one that still writes, and both would write the "
                f"same records; restore in a session that begins with {name}={allowed}"
            )


@contextmanager
def _all_tasks_ended(spark: SparkSession) -> Iterator[None]:
    """Wait after a failure until no task that was started inside runs any more: Spark only asks them to end.

    Raises JobFailed if a task goes on.
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
        context.setLocalProperty(GROUP, before)  # type: ignore[arg-type]  # None takes it away.


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
    """Yield the rows, built column by column: dicts of rows take ten times as long."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
