"""Records of a data frame to a function of Python: each partition of the topic in one task, in the order of offsets."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row

from barnabas_jobs.spark.records import settings

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = ("partition", "offset", "timestamp_ms", "key", "value", "headers")
COUNTS: Final = "partition int, written long, there long"
# Rows come as Arrow, some thousand together; of large records fewer, for a task has them all in memory.
BATCH: Final = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
}


class Writer(Protocol):
    """What a task does; it goes to the executors."""

    def __call__(self, rows: Iterable[Mapping[str, Any]], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Of rows with COLUMNS, in the order of partitions and offsets: the COUNTS of each partition.

        `is_again`: a task before this one has begun with the same rows.
        """


def write_by_partition(records: DataFrame, tasks: int, writer: Writer) -> list[Row]:
    """What the tasks have counted, as COUNTS. A task has more partitions where there are not as many tasks."""
    ordered = records.select(*COLUMNS).repartitionById(tasks, "partition").sortWithinPartitions("partition", "offset")
    with settings(records.sparkSession, BATCH):
        return ordered.mapInArrow(partial(_task, writer), COUNTS).collect()


def _task(writer: Writer, batches: "Iterable[pyarrow.RecordBatch]") -> "Iterator[pyarrow.RecordBatch]":
    import pyarrow

    context = TaskContext.get()
    is_again = context is not None and context.attemptNumber() > 0
    rows = (row for batch in batches for row in batch.to_pylist())
    for partition, written, there in writer(rows, is_again=is_again):
        yield pyarrow.RecordBatch.from_pydict(
            {"partition": pyarrow.array([partition], pyarrow.int32()), "written": [written], "there": [there]}
        )
