"""Archives in a bucket, through Hadoop's real client and an S3 server."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from buckets import Bucket, configure, new_bucket
from jobs_world import World
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from pyspark.sql import SparkSession
from werkzeug.serving import make_server

from barnabas_jobs.jobs import restore
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.spark.object_store import ObjectStore

WRITERS = 8


def test_a_topic_is_archived_verified_and_restored_from_a_bucket(
    spark: SparkSession, world: World, bucket: Bucket
) -> None:
    world.at(bucket.location).make()
    world.write(30)
    world.archive(spark)
    world.write(30)
    result = world.archive(spark)
    assert (result.records, result.archived_records) == (30, 60)
    before = world.read()
    assert world.archived(spark) == before
    assert world.verify(spark).fine
    world.delete()
    options = {"bootstrap": world.bootstrap, "topic": world.topic, "archive": bucket.location, "create": True}
    assert restore.run(spark, msgspec.convert(options, restore.Options)).written == {0: 20, 1: 20, 2: 20}
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


@contextmanager
def server_without_conditions() -> Iterator[str]:
    """Run an S3 server that ignores conditional puts, as older ones do."""
    whole = DomainDispatcherApplication(create_backend_app)

    def without(environ: dict[str, Any], start_response: Any) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return whole(environ, start_response)

    server = make_server("127.0.0.1", 0, without, threaded=True, request_handler=MotoRequestHandler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        serving.join()


def test_archive_refuses_a_server_that_ignores_conditional_puts(spark: SparkSession, world: World) -> None:
    with server_without_conditions() as endpoint:
        bucket = new_bucket(endpoint, spark)
        world.at(bucket.location).make(1)
        with pytest.raises(JobFailed, match="use a server with conditional puts"):
            world.archive(spark)
        assert bucket.keys() == [""]  # Hadoop's mark that the folder is there.


def test_archive_names_a_bucket_that_does_not_exist(spark: SparkSession, world: World, s3_endpoint: str) -> None:
    configure(spark, s3_endpoint, "nowhere")
    world.at("s3a://nowhere/archive").make(1)
    with pytest.raises(JobFailed, match=r"archive=s3a://nowhere/archive: cannot reach: .*nowhere"):
        world.archive(spark)
