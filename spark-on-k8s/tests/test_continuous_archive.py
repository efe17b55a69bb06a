"""The continuous form of `archive`, in drivers that get SIGTERM or are killed."""

import random
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from confluent_kafka.admin import NewPartitions
from jobs_world import World
from pyspark.sql import SparkSession
from started_drivers import driver
from test_archived_transactions import transaction

from barnabas_jobs.app.main import EXIT_TERMINATED
from barnabas_jobs.jobs import archive
from barnabas_jobs.planning.errors import JobFailedLate
from barnabas_jobs.spark.status import SparkStatus
from harness.deadline import PATIENCE_S, wait_for
from harness.soak import seed

CONTINUOUS = {"continuous": "true", "trigger_seconds": 1, "commit_records": 40}
KILLS = 6
LIFE_S = (0.0, 6.0)
POLL_S = 0.3


def await_archived(spark: SparkSession, world: World, records: int) -> None:
    """Wait until the table has this many records."""
    wait_for(lambda: committed(spark, world), lambda found: found == records, PATIENCE_S, POLL_S)


def committed(spark: SparkSession, world: World) -> int:
    """Return the number of records in the table, if there is one."""
    return sum(each.records for each in world.tables(spark).topics(world.topic))


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Send SIGTERM; return the exit code and the output."""
    process.terminate()
    said = process.communicate(timeout=PATIENCE_S)[0]
    return process.returncode, said.strip()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_continuous_archive_archives_each_record_once_until_sigterm(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make(2)
    world.write(30, 2)
    with driver(spark, world, tmp_path / "driver.log", **CONTINUOUS) as process:
        await_archived(spark, world, 30)
        world.write(30, 2)
        await_archived(spark, world, 60)
        assert ended(process) == (EXIT_TERMINATED, "ended")
    world.client.admin.create_partitions([NewPartitions(world.topic, 3)])[world.topic].result(PATIENCE_S)
    world.write(30)
    with driver(spark, world, tmp_path / "driver.log", **CONTINUOUS) as process:
        await_archived(spark, world, 90)
        world.write(90)
        await_archived(spark, world, 180)
        assert ended(process) == (EXIT_TERMINATED, "ended")
    assert world.archive(spark).commits == 0
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine


@pytest.mark.slow
def test_the_table_knows_partitions_that_were_empty_and_partitions_added_later(
    spark: SparkSession, world: World
) -> None:
    """Retention had removed all records of both first partitions before the archive began."""
    world.make(2)
    world.write(10, 2)
    world.delete_before({0: 5, 1: 5})
    stopping = threading.Event()
    chosen = msgspec.convert({**world.options(), "continuous": True, "trigger_seconds": 1}, archive.Options)
    job = threading.Thread(target=lambda: archive.run(spark, chosen, stopping=stopping))
    job.start()
    try:
        wait_for(lambda: spark.streams.active)
        world.client.write(world.topic, [b"one"] * 5, 0)
        await_archived(spark, world, 5)
        world.client.admin.create_partitions([NewPartitions(world.topic, 3)])[world.topic].result(PATIENCE_S)
        world.client.write(world.topic, [b"two"] * 5, 2)
        await_archived(spark, world, 10)
        seen = wait_for(lambda: SparkStatus(spark).seen(), lambda found: found.records_behind == 0)
        head = world.archived_topic(spark).head
        assert head is not None
        assert (seen.last_commit_ms, head.topic_partitions) == (head.committed_at_ms, 3)
    finally:
        stopping.set()
        job.join()
    world.client.write(world.topic, [b"three"] * 5, 1)
    result = world.archive(spark)
    assert (result.records, result.lost) == (5, [])
    assert world.archived(spark) == world.read()


@pytest.mark.slow
def test_a_continuous_archive_of_a_transactional_topic_ends_where_the_topic_ends(
    spark: SparkSession, world: World
) -> None:
    """The marker at the end may be deleted by retention; then it is not taken for lost records."""
    world.make(1)
    transaction(world, f"{world.topic}-one", [b"a", b"b"], commits=True)
    chosen = msgspec.convert({**world.options(), "continuous": True, "trigger_seconds": 1}, archive.Options)
    stopping = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(archive.run, spark, chosen, stopping=stopping)
        try:
            await_archived(spark, world, 2)
            wait_for(lambda: spark.streams.active)
            transaction(world, f"{world.topic}-two", [b"no"] * 3, commits=False)
            wait_for(lambda: world.archived_topic(spark).ends(), lambda ends: ends == {0: 7})
        finally:
            stopping.set()
        job.result(PATIENCE_S)
    world.delete_before({0: 7})
    world.client.write(world.topic, [b"c"])
    result = world.archive(spark)
    assert (result.records, result.lost) == (1, [])


@pytest.mark.slow
def test_continuous_archive_fails_with_a_late_failure_after_an_hour(spark: SparkSession, world: World) -> None:
    """The Kubernetes Job does not count a late failure as a try."""
    world.make(1)
    world.write(5, 1)
    chosen = msgspec.convert({**world.options(), "continuous": True, "trigger_seconds": 1}, archive.Options)
    now_s, stopping = [0.0], threading.Event()
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(archive.run, spark, chosen, lambda: now_s[0], stopping)
        try:
            await_archived(spark, world, 5)
            wait_for(lambda: spark.streams.active)
            now_s[0] = 3600
            world.delete()
            with pytest.raises(JobFailedLate):
                job.result(PATIENCE_S)
        finally:
            stopping.set()


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
def test_continuous_archive_killed_at_any_moment_loses_and_duplicates_no_record(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    chance = random.Random(seed())
    world.make()
    for _ in range(KILLS):
        world.write(60)
        with driver(spark, world, tmp_path / "driver.log", **CONTINUOUS) as process:
            world.write(60)
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(chance.uniform(*LIFE_S))
    head = world.archived_topic(spark).head
    assert head is not None
    assert head.number > 1
    assert world.archive(spark).archived_records == KILLS * 120
    assert world.archived(spark) == world.read()
    assert world.verify(spark).fine
