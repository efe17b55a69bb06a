"""A driver that is killed at any moment of an archive's run (`kill -9`): nothing is lost, nothing is there twice."""

import random
import subprocess
import time
from pathlib import Path

import pytest
from jobs_world import World
from pyspark.sql import SparkSession
from started_drivers import driver

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.files.local_folder import LocalFolder
from harness.deadline import wait_for
from harness.soak import seed

KILLS = 20
RECORDS_A_ROUND = 60
RECORDS_A_COMMIT = 30
# Of the time that a run takes which nobody kills: some end before they are killed.
LIFE_MAX = 1.2
ROUNDS_MAX = 3 * KILLS
RUN_SECONDS_MAX = 300.0
# So many of the kills must have left something behind, or they were all between two commits.
LEFTOVERS_MIN = 3


def lived_s(process: subprocess.Popen[str], life_s: float) -> float | None:
    """How long it took to its end; None where it was killed after so long. It must not fail by itself."""
    began_s = time.monotonic()
    try:
        assert process.wait(life_s) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
    return time.monotonic() - began_s


def leftovers(folder: ArchiveFolder) -> int:
    """Runs' folders that no ledger entry names."""
    named = sum(1 for entry in folder.ledger().entries if entry.files)
    return len(list(Path(folder.data).glob("*/*"))) - named


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
def test_a_driver_killed_at_any_moment_loses_and_doubles_nothing(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    chance = random.Random(seed())
    world.make()
    folder = ArchiveFolder(LocalFolder(str(world.folder)))
    kills = with_leftovers = 0
    world.write(RECORDS_A_ROUND)
    with driver(spark, world, tmp_path / "driver.log", commit_records=RECORDS_A_COMMIT) as process:
        whole_s = lived_s(process, RUN_SECONDS_MAX)
    assert whole_s is not None
    commits_before = len(folder.ledger().entries)
    for _ in range(ROUNDS_MAX):
        world.write(RECORDS_A_ROUND)
        with driver(spark, world, tmp_path / "driver.log", commit_records=RECORDS_A_COMMIT) as process:
            took_s = lived_s(process, chance.uniform(0, LIFE_MAX * whole_s))
        if took_s is not None:
            whole_s = took_s
            continue
        kills += 1
        with_leftovers += leftovers(folder) > 0
        if kills == KILLS:
            break
    assert kills == KILLS
    assert with_leftovers >= LEFTOVERS_MIN
    assert len(folder.ledger().entries) > commits_before
    assert world.archive(spark).archived_records == len(world.read())
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine
    # What a dead driver began in the JVM may go on for a moment, and leaves a folder that the run after that removes.
    wait_for(lambda: (world.archive(spark).commits, leftovers(folder)), lambda found: found == (0, 0))
