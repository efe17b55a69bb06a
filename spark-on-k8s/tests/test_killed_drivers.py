"""A driver that is killed at any moment of an archive's run (`kill -9`): nothing is lost, nothing is there twice."""

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attached_driver
import pytest
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_folder import ArchiveFolder
from harness.deadline import wait_for
from harness.server_process import bound_to_us

KILLS = 20
RECORDS_A_ROUND = 60
RECORDS_A_COMMIT = 30
LIFE_S_MAX = 3.0
ROUNDS_MAX = 60
# So many of the kills must have left something behind, or they were all between two commits.
LEFTOVERS_MIN = 3


@contextmanager
def driver(spark: SparkSession, world: World, log: Path) -> Iterator[subprocess.Popen[str]]:
    """One that has begun. Its end is the kernel's, at the latest with this test's."""
    options = {
        "bootstrap": world.bootstrap,
        "topic": world.topic,
        "archive": str(world.folder),
        "commit_records": str(RECORDS_A_COMMIT),
    }
    words = [f"{name}={value}" for name, value in options.items()]
    command = bound_to_us([sys.executable, attached_driver.__file__, "archive", *words])
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **attached_driver.environment(spark)},
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line == "begun", f"{line}\n{log.read_text(encoding='utf-8')[-3000:]}"
        yield process
    finally:
        process.kill()
        process.communicate()


def killed(process: subprocess.Popen[str], life_s: float) -> bool:
    """Whether it lived until it was killed after so long; it must not fail by itself."""
    try:
        assert process.wait(life_s) == 0
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def leftovers(folder: ArchiveFolder) -> int:
    """Runs' folders that no ledger entry names."""
    named = sum(1 for entry in folder.ledger().entries if entry.files)
    return len(list(folder.data.glob("*/*"))) - named


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_killed_at_any_moment_loses_and_doubles_nothing(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    seed = int(os.environ.get("JOBS_SEED", random.randrange(1 << 32)))
    print(f"replay: JOBS_SEED={seed} .venv/bin/pytest {__file__}")
    chance = random.Random(seed)
    world.make()
    folder = ArchiveFolder(str(world.folder))
    kills = with_leftovers = 0
    for _ in range(ROUNDS_MAX):
        world.write(RECORDS_A_ROUND)
        with driver(spark, world, tmp_path / "driver.log") as process:
            if not killed(process, chance.uniform(0, LIFE_S_MAX)):
                continue
        kills += 1
        with_leftovers += folder.path.exists() and leftovers(folder) > 0
        if kills == KILLS:
            break
    assert kills == KILLS
    assert with_leftovers >= LEFTOVERS_MIN
    commits_before = len(folder.ledger().entries)
    assert world.archive(spark, commit_records=RECORDS_A_COMMIT).archived_records == len(world.read())
    assert commits_before > 1
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine
    # What a dead driver began in the JVM may go on for a moment, and leaves a folder that the run after that removes.
    wait_for(lambda: (world.archive(spark).commits, leftovers(folder)), lambda found: found == (0, 0))
