"""`barnabas jobs run` after SIGTERM: it stops Spark and says so, and keeps what it had committed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs_world import JARS, SHORT_LIVED, SMALL, World
from pyspark.sql import SparkSession

from barnabas_jobs.app.main import EXIT_TERMINATED
from harness.deadline import PATIENCE_S, wait_for
from harness.server_process import bound_to_us

RECORDS = 300
COMMITS_SECONDS_MAX = 300.0
"""A driver starts slowly on a busy machine."""


@pytest.mark.slow
@pytest.mark.soak(only=True)
def test_a_run_that_gets_sigterm_stops_spark_and_keeps_its_commits(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make()
    world.write(RECORDS)
    options = {"bootstrap": world.bootstrap, "topic": world.topic, "archive": str(world.folder), "commit_records": "5"}
    words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    conf = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    command = ["-m", "barnabas", "jobs", "run", "archive", "--master", "local[1]", "--jars", str(JARS), *words, *conf]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")}
    log = tmp_path / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            bound_to_us([sys.executable, *command]),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**environment, "JDK_JAVA_OPTIONS": SHORT_LIVED},
        )
    try:
        wait_for(lambda: list(world.folder.glob("ledger/0000000[1-9].json")), seconds_max=COMMITS_SECONDS_MAX)
        process.send_signal(signal.SIGTERM)
        result, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    said = log.read_text(encoding="utf-8")
    assert process.returncode == EXIT_TERMINATED, said
    assert result == ""
    assert "barnabas jobs: SIGTERM ended the job; only results committed before SIGTERM are kept" in said
    assert "Traceback" not in said
    rest = world.archive(spark)
    assert (rest.archived_records, 0 < rest.records < RECORDS) == (RECORDS, True)
    assert world.archived(spark) == world.read()
