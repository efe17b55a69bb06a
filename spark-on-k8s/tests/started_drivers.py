"""Drivers as processes that tests end: they use the JVM of the test."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attached_driver
from jobs_world import World
from pyspark.sql import SparkSession

from harness.server_process import bound_to_us


@contextmanager
def driver(spark: SparkSession, world: World, log: Path, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Yield a driver of `archive` once its job has begun. The kernel ends it at the latest with this test."""
    chosen = {"bootstrap": world.bootstrap, "topic": world.topic, "archive": world.location, **options}
    words = [f"{name}={value}" for name, value in chosen.items()]
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
