"""Records of a data frame to a function of Python: each partition of the topic in one task, in the order of offsets."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812  # As everybody who writes Spark calls it.

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


class Writer(Protocol):
    """What a task does; it goes to the executors."""

    def __call__(self, records: Iterable[Any], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        """Of tuples of COLUMNS, in the order of offsets: the COUNTS of their partition.

        `is_again`: a task before this one has begun with the same records.
        """


def write_by_partition(records: DataFrame, sizes: Mapping[int, int], writer: Writer) -> list[Row]:
    """What the tasks have counted, as COUNTS. `sizes`: how many records each partition has; there are no others.

    Each has a task of its own. The largest is the first to begin, for what runs last runs alone. By one number, which
    all of a task's records have in the same place, Spark sorts without comparing rows.
    """
    tasks = {each: task for task, each in enumerate(sorted(sizes, key=lambda each: -sizes[each]))}
    by_partition = F.lit([tasks.get(each, 0) for each in range(max(sizes, default=0) + 1)])
    filled = records.withColumn("headers", F.coalesce("headers", F.array()))  # See BATCH.
    alone = filled.select("offset", *COLUMNS).repartitionById(max(1, len(tasks)), by_partition[F.col("partition")])
    ordered = alone.sortWithinPartitions("offset").select(*COLUMNS)
    with settings(records.sparkSession, BATCH):
        return ordered.mapInArrow(partial(_task, writer), COUNTS).collect()


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
    """Column by column: dicts of rows take ten times as long."""
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)
