"""Buckets of an S3 server, and Spark's configuration for them."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from pyspark.sql import SparkSession
from werkzeug.serving import make_server


class Bucket(NamedTuple):
    """A bucket, and Amazon's client for it."""

    name: str
    client: Any

    @property
    def location(self) -> str:
        """The location of an archive in the bucket."""
        return f"s3a://{self.name}/archives/one"

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects in that archive, relative to it."""
        root = "archives/one/"
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=root + prefix)
        return [each["Key"].removeprefix(root) for page in pages for each in page.get("Contents", ())]


def new_bucket(endpoint: str, spark: SparkSession) -> Bucket:
    """Make an empty bucket, and configure the session for it."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    client.create_bucket(Bucket=name)
    configure(spark, endpoint, name)
    return Bucket(name, client)


def configure(spark: SparkSession, endpoint: str, bucket: str) -> None:
    """Set what users give as `--conf spark.hadoop.fs.s3a...`, for this bucket only."""
    hadoop: Any = spark._jsc.hadoopConfiguration()
    own = {
        "endpoint": endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "a",
        "secret.key": "b",
    }
    for key, value in own.items():
        hadoop.set(f"fs.s3a.bucket.{bucket}.{key}", value)


class Outage:
    """A bucket that fails from some request on; `left` is None while it works."""

    def __init__(self) -> None:
        self.left: int | None = None

    def fails(self) -> bool:
        """Count a request; True if it must fail."""
        if self.left is None:
            return False
        self.left -= 1
        return self.left < 0


@contextmanager
def failing_server(outage: Outage) -> Iterator[str]:
    """Run an S3 server that fails when `outage` says so, and yield its address."""
    with s3_server(lambda _: outage.fails()) as endpoint:
        yield endpoint


@contextmanager
def s3_server(rejects: Callable[[dict[str, Any]], bool]) -> Iterator[str]:
    """Run an S3 server that answers 503 if `rejects` is true of a request's WSGI environment, and yield its address."""
    whole = DomainDispatcherApplication(create_backend_app)

    def answer(environ: dict[str, Any], start_response: Any) -> Any:
        if rejects(environ):
            start_response("503 Service Unavailable", [])
            return [b""]
        return whole(environ, start_response)

    server = make_server("127.0.0.1", 0, answer, threaded=True, request_handler=MotoRequestHandler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        serving.join()
