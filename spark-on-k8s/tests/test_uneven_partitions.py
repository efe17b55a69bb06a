"""Topics with most records in one partition: how `archive` and `restore` divide them among tasks."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from jobs_world import FIRST_MS, World
from pyspark import TaskContext
from pyspark.sql import SparkSession

from barnabas_jobs.kafka import writer as kafka_writer
from barnabas_jobs.kafka.writer import TopicWriter
from barnabas_jobs.spark import records as spark_records
from barnabas_jobs.spark.partition_tasks import write_by_partition
from barnabas_jobs.spark.records import SCHEMA


def test_a_long_partition_is_archived_by_several_tasks(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_records, "TASK_RECORDS", 10)
    world.make()
    world.write(24, 1)
    world.write(6)
    world.archive(spark)
    tasks = {
        part: len({each.name[:10] for each in world.folder.rglob(f"partition={part}/*.parquet")}) for part in (0, 1)
    }
    assert tasks == {0: 3, 1: 1}
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine


def test_each_partition_has_its_own_task_and_the_largest_starts_first(spark: SparkSession) -> None:
    sizes = {0: 4, 2: 20, 4: 10}
    rows = [
        (partition, offset, None, 0, None, b"%d" % offset, None)
        for partition, size in sizes.items()
        for offset in reversed(range(size))
    ]
    records = spark.createDataFrame(rows, SCHEMA).selectExpr("*", "offset AS timestamp_ms").repartition(3)
    counts = write_by_partition(records, sizes, of_task())
    assert [(row["there"], row["partition"], row["written"]) for row in counts] == [(0, 2, 20), (1, 4, 10), (2, 0, 4)]


def of_task() -> Any:
    """Make a writer that yields its task's number, and the number of records that came in order."""

    def write(records: Iterable[Any], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        found = list(records)
        context = TaskContext.get()
        assert context is not None
        assert not is_again
        assert all(row[4] == [] for row in found), "null lists make Spark's Arrow writer loop over all other lists"
        assert [row[:2] for row in found] == [(found[0][0], offset) for offset in range(len(found))]
        yield found[0][0], len(found), context.partitionId()

    return write


def test_a_full_producer_queue_loses_and_reorders_no_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kafka_writer.PRODUCER, "queue.buffering.max.messages", 7)
    monkeypatch.setattr(kafka_writer, "POLLED", 20)
    world.make(1)
    rows = [(0, FIRST_MS + number, None, b"%d" % number, None) for number in range(100)]
    write = TopicWriter(world.bootstrap, world.topic, {0: 0}, {0: len(rows)}, {0: 0})
    assert list(write(iter(rows))) == [(0, 100, 0)]
    assert [(record[2], record[4]) for record in world.read()] == [(row[1], row[3]) for row in rows]
