"""Topics with most records in one partition: how `archive` and `restore` divide them among tasks."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs_world import FIRST_MS, World
from pyspark import TaskContext
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import archive
from barnabas_jobs.kafka import writer as kafka_writer
from barnabas_jobs.kafka.writer import TopicWriter
from barnabas_jobs.spark import records as spark_records
from barnabas_jobs.spark.failures import write_by_partition


def test_a_long_partition_is_archived_by_several_tasks(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_records, "TASK_RECORDS", 10)
    monkeypatch.setattr(archive, "FILE_OFFSETS", 1)  # Otherwise the tasks share a file.
    world.make()
    world.write(24, 1)
    world.write(6)
    world.archive(spark)
    files = [each for each in world.archived_topic(spark).files() if each.partition_min == 0]
    tasks = {Path(each.path).name[:10] for each in files}  # The file of a task begins with its number: part-00000.
    assert len(tasks) == 3
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine


def test_each_partition_has_its_own_task_and_the_largest_starts_first(spark: SparkSession) -> None:
    sizes = {0: 4, 2: 20, 4: 10}
    records = {partition: [(partition, offset) for offset in range(size)] for partition, size in sizes.items()}
    assert write_by_partition(spark, records, sizes, of_task()) == [(2, 20, 0), (4, 10, 1), (0, 4, 2)]


def of_task() -> Any:
    """Make a writer that yields the partition of the records, their number, and the number of the task."""

    def write(records: Iterable[Any], *, is_again: bool = False) -> Iterator[tuple[int, int, int]]:
        found = list(records)
        context = TaskContext.get()
        assert context is not None
        assert not is_again
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
