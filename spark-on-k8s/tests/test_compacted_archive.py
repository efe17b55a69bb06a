"""The job `compact`, with Spark: files are joined by day, beside an archive, and a later run removes the old ones."""

import time
from typing import Any

import msgspec
import pytest
from jobs_world import QUIET_S, World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import compact, restore
from barnabas_jobs.planning.errors import Refused


def run(spark: SparkSession, world: World, later_ms: int = 0, **more: Any) -> compact.Result:
    """Run the job at a time after now."""
    options = compact.Options(topic=world.topic, archive=world.location, **more)
    return compact.run(spark, options, lambda: time.time() + later_ms / 1000)


@pytest.mark.slow
def test_a_compacted_archive_is_read_restored_and_continued_as_before(spark: SparkSession, world: World) -> None:
    world.make()
    for _ in range(2):
        world.write(9)
        world.archive(spark)
    before = world.read()
    first = run(spark, world)
    days = {record[2] // 86_400_000 for record in before}
    assert (first.table, first.files_after, first.removed_files) == (f"barnabas.{world.topic}", len(days), 0)
    assert first.files_before > first.files_after
    world.write(9)
    assert world.archive(spark).archived_records == 27
    assert run(spark, world, commit_records=1).joined_files == 0
    again = run(spark, world, compact.KEEP_MS)
    assert again.joined_files == 2, "the day of the last records has two files"
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine
    into = f"{world.topic}-into"
    chosen = msgspec.convert({**world.options(), "into": into, "create": True}, restore.Options)
    restore.run(spark, chosen, quiet_s=QUIET_S)
    assert world.read(into) == world.read()


def test_compact_of_a_topic_without_an_archive_is_refused(spark: SparkSession, world: World) -> None:
    with pytest.raises(Refused, match="there is no archive of the topic"):
        run(spark, world)
