"""A driver of `archive` that is killed at any moment (`kill -9`) loses no record and writes none twice."""

import random
import subprocess
import time
from pathlib import Path

import pytest
from jobs_world import World
from pyspark.sql import SparkSession
from started_drivers import driver

from barnabas_jobs.planning.archived import left_over
from harness.deadline import wait_for
from harness.soak import seed

KILLS = 20
RECORDS_A_ROUND = 60
RECORDS_A_COMMIT = 30
# As a share of the time of a run that is not killed: some runs end before they are killed.
LIFE_MAX = 1.2
ROUNDS_MAX = 3 * KILLS
RUN_SECONDS_MAX = 300.0
# At least this many kills must leave files behind, else all of them came between two commits.
LEFTOVERS_MIN = 3


def lived_s(process: subprocess.Popen[str], life_s: float) -> float | None:
    """Return the seconds until the process ended by itself without an error, or None if it was killed first."""
    began_s = time.monotonic()
    try:
        assert process.wait(life_s) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
    return time.monotonic() - began_s


def leftovers(spark: SparkSession, world: World) -> int:
    """Return the number of run folders that no snapshot names."""
    folders = {path.name for path in world.folder.glob("barnabas/*/data/run=*")}
    found = world.tables(spark).topics(world.topic)
    named = {path.split("/")[-3] for each in found for path in each.paths()}
    return len(folders - named)


def may_commit(spark: SparkSession, world: World) -> int:
    """Return the number of run folders that an interrupted run might still commit."""
    folders = [path.name.removeprefix("run=") for path in world.folder.glob("barnabas/*/data/run=*")]
    head = world.archived_topic(spark).head
    return len(left_over(head, folders, [head.run] if head else []))


def commits(spark: SparkSession, world: World) -> int:
    """Return the number of commits."""
    head = world.archived_topic(spark).head
    return head.number + 1 if head else 0


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
def test_archive_killed_at_any_moment_loses_and_duplicates_no_record(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    chance = random.Random(seed())
    world.make()
    kills = with_leftovers = 0
    world.write(RECORDS_A_ROUND)
    with driver(spark, world, tmp_path / "driver.log", commit_records=RECORDS_A_COMMIT) as process:
        whole_s = lived_s(process, RUN_SECONDS_MAX)
    assert whole_s is not None
    commits_before = commits(spark, world)
    for _ in range(ROUNDS_MAX):
        world.write(RECORDS_A_ROUND)
        with driver(spark, world, tmp_path / "driver.log", commit_records=RECORDS_A_COMMIT) as process:
            took_s = lived_s(process, chance.uniform(0, LIFE_MAX * whole_s))
        if took_s is not None:
            whole_s = took_s
            continue
        kills += 1
        with_leftovers += leftovers(spark, world) > 0
        if kills == KILLS:
            break
    assert kills == KILLS
    assert with_leftovers >= LEFTOVERS_MIN
    assert commits(spark, world) > commits_before
    assert world.archive(spark).archived_records == len(world.read())
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine
    # Work that a killed driver began goes on in the JVM of this test for a moment, and makes the folder again of a run
    # that can commit no more: `compact` removes those after a day.
    wait_for(lambda: (world.archive(spark).commits, may_commit(spark, world)), lambda found: found == (0, 0))
