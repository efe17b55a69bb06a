"""Archives in a bucket, through Hadoop's real client and an S3 server."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import restore
from barnabas_jobs.jobs.location import ObjectStore
from barnabas_jobs.planning.errors import JobFailed
from harness.buckets import Bucket, Outage, configure, failing_server, new_bucket

WRITERS = 8


def catalog_in(folder: Path) -> dict[str, str]:
    """Return the properties of a catalog whose server is a file of SQLite; in production it is PostgreSQL."""
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"}


def test_a_topic_is_archived_verified_and_restored_from_a_bucket(
    spark: SparkSession, world: World, bucket: Bucket, tmp_path: Path
) -> None:
    world.at(bucket.location, catalog_in(tmp_path)).make()
    world.write(30)
    world.archive(spark)
    world.write(30)
    result = world.archive(spark)
    assert (result.records, result.archived_records) == (30, 60)
    before = world.read()
    assert world.verify(spark).fine
    world.delete()
    options = msgspec.convert({**world.options(), "create": True}, restore.Options)
    assert restore.run(spark, options).written == {0: 20, 1: 20, 2: 20}
    assert world.read() == before


def test_only_one_of_several_writers_adds_an_object(spark: SparkSession, bucket: Bucket) -> None:
    contents = [b"%d" % number for number in range(WRITERS)]
    stores = [ObjectStore(spark, bucket.location) for _ in contents]
    with ThreadPoolExecutor(WRITERS) as pool:
        won = list(pool.map(lambda store, content: store.add("ledger/00000000.json", content), stores, contents))
    assert won.count(True) == 1
    assert stores[0].read("ledger/00000000.json") == contents[won.index(True)]


def test_adding_the_same_content_again_is_no_conflict(spark: SparkSession, bucket: Bucket) -> None:
    """The client retries if the bucket's first response was lost."""
    store = ObjectStore(spark, bucket.location)
    assert store.add("ledger/00000000.json", b"ours")
    assert store.add("ledger/00000000.json", b"ours")
    assert not store.add("ledger/00000000.json", b"theirs")


def test_archive_names_a_bucket_that_does_not_exist(
    spark: SparkSession, world: World, s3_endpoint: str, tmp_path: Path
) -> None:
    configure(spark, s3_endpoint, "nowhere")
    world.at("s3a://nowhere/archive", catalog_in(tmp_path)).make(1)
    with pytest.raises(JobFailed, match=r"archive=s3a://nowhere/archive: cannot reach: .*nowhere"):
        world.archive(spark)


@pytest.mark.timeout(120)
def test_a_job_gives_up_a_bucket_that_answers_503_for_long(spark: SparkSession) -> None:
    """Its waits are a hundredth as long as usual; with Hadoop's default, they would still take a quarter of an hour."""
    outage = Outage()
    with failing_server(outage) as endpoint:
        bucket = new_bucket(endpoint, spark)
        hadoop: Any = spark._jsc.hadoopConfiguration()
        hadoop.set(f"fs.s3a.bucket.{bucket.name}.attempts.maximum", "1")
        hadoop.set(f"fs.s3a.bucket.{bucket.name}.retry.throttle.interval", "1ms")
        outage.left = 0
        with pytest.raises(JobFailed, match=rf"archive={bucket.location}: cannot reach: .*503"):
            ObjectStore(spark, bucket.location).make()
