"""What else can go wrong during an archive run: deleted records, odd timestamps, unexpected files."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.files.store import LocalFolder
from barnabas_jobs.jobs import archive
from barnabas_jobs.planning.errors import JobFailed
from harness.deadline import PATIENCE_S


def meanwhile(patch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """Call `happens` after the ranges were chosen and before Spark reads the first record."""
    real: Any = archive.of_topic  # type: ignore[attr-defined]

    def of_topic(*arguments: Any) -> Any:
        records = real(*arguments)
        patch.setattr(archive, "of_topic", real)
        happens()
        return records

    patch.setattr(archive, "of_topic", of_topic)


def test_archive_fails_if_records_are_deleted_during_the_read(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.make(1)
    world.write(20, 1)
    world.archive(spark)
    world.write(20, 1)
    meanwhile(monkeypatch, lambda: world.delete_before({0: 25}))
    with pytest.raises(JobFailed, match="records were deleted from the topic while the job read it"):
        world.archive(spark)
    assert len(world.archived(spark)) == 20
    with pytest.raises(JobFailed, match=r"partition 0 \[20, 25\) was deleted from the topic before it was archived"):
        world.archive(spark)


@pytest.mark.slow
def test_archive_fails_if_the_topic_is_deleted_and_recreated_during_the_read(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def happens() -> None:
        world.delete()
        world.make(1)
        world.write(20, 1)

    world.make(1)
    world.write(20, 1)
    meanwhile(monkeypatch, happens)
    with pytest.raises(JobFailed, match="was deleted and created again while it was read"):
        world.archive(spark)
    assert world.tables(spark).topics(world.topic) == []


def test_a_new_partition_that_lost_its_first_records_fails_archive_by_default(
    spark: SparkSession, world: World
) -> None:
    world.make(1)
    world.write(10, 1)
    world.archive(spark)
    world.client.admin.create_partitions([NewPartitions(world.topic, 2)])[world.topic].result(PATIENCE_S)
    world.client.write(world.topic, [b"lost", b"kept"], partition=1)
    world.delete_before({1: 1})
    with pytest.raises(JobFailed, match=r"partition 1 \[0, 1\) was deleted from the topic before it was archived"):
        world.archive(spark)
    assert world.archive(spark, fail_on_data_loss=False).records == 1
    assert world.verify(spark).fine


def timed(world: World, moments_ms: list[int]) -> None:
    """Write a record with each of these timestamps; brokers accept all of them."""
    producer = Producer({**world.client.settings, "acks": "all"})
    for moment_ms in moments_ms:
        producer.produce(world.topic, b"%d" % moment_ms, partition=0, timestamp=moment_ms)
    assert producer.flush(PATIENCE_S) == 0


def test_timestamps_before_1970_are_kept(spark: SparkSession, world: World) -> None:
    moments_ms = [-1, -5, -86_400_000 * 365, -2_208_988_800_000, 253_402_300_799_999]
    world.make(1, message_timestamp_after_max_ms=str(2**63 - 1))
    timed(world, moments_ms)
    world.archive(spark)
    assert [record[2] for record in world.archived(spark)] == moments_ms
    assert world.verify(spark).fine


def test_archive_refuses_a_timestamp_that_spark_would_change(spark: SparkSession, world: World) -> None:
    """Spark moves timestamps before 1582 by days, and in some time zones those before 1900 by seconds."""
    world.make(1)
    timed(world, [-5, -20_000_000_000_000])
    with pytest.raises(JobFailed, match="partition 0 offset 1 has a timestamp before the year 1900 or after 9999"):
        world.archive(spark)


def test_archive_refuses_a_timestamp_that_spark_cannot_hold(spark: SparkSession, world: World) -> None:
    """A producer may write nanoseconds where milliseconds belong."""
    world.make(1, message_timestamp_after_max_ms=str(2**63 - 1))
    timed(world, [1_357_000_000_000, 1_357_000_000_000_000_000])
    with pytest.raises(JobFailed, match="a record's timestamp is after the year 294246"):
        world.archive(spark)


def test_archive_keeps_folders_that_belong_to_no_run(spark: SparkSession, world: World) -> None:
    """A user may name a folder that already has a folder `data` with their own files."""
    precious = world.folder / "data" / "raw" / "2020"
    precious.mkdir(parents=True)
    (precious / "only-copy.csv").write_text("a", encoding="utf-8")
    world.make(1)
    world.write(5, 1)
    world.archive(spark)
    assert (precious / "only-copy.csv").exists()


def test_archive_fails_if_the_store_does_not_list_a_written_file(
    spark: SparkSession, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a store lists files late, missing records would look like compacted ones."""
    world.make()
    world.write(30)
    sizes = LocalFolder.sizes

    def all_but_one(folder: LocalFolder, name: str) -> dict[str, int]:
        found = sizes(folder, name)
        del found[max(path for path in found if path.endswith(".parquet"))]
        return found

    with monkeypatch.context() as late:
        late.setattr(LocalFolder, "sizes", all_but_one)
        with pytest.raises(JobFailed, match="30 records were written, but the files in the store hold "):
            world.archive(spark)
    assert world.tables(spark).topics(world.topic) == []
    assert world.archive(spark).records == 30
