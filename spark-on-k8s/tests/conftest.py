"""One broker and one Spark session with the real connector for all tests of a process; each has a topic and archive."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs_world import JARS, SHORT_LIVED, SMALL, World, broker_for_jobs
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

from barnabas_jobs.app.connector import ConnectorMissing, session
from harness.buckets import Bucket, new_bucket
from harness.require import missing
from harness.server_process import ServerProcess


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session with local[2] and the clients of Kafka and S3; tests are skipped without Java or the jars."""
    try:
        with pytest.MonkeyPatch.context() as patched:  # Other tests start Kafka with other options.
            patched.setenv("JDK_JAVA_OPTIONS", SHORT_LIVED)
            started = session("local[2]", JARS, SMALL, s3=True)
    except ConnectorMissing as reason:
        missing(reason)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A real broker. Tests use their own topics."""
    server = broker_for_jobs(tmp_path_factory.mktemp("broker"))
    server.start()
    try:
        yield server
        server.stop()
    finally:
        server.close()


@pytest.fixture
def world(broker: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> World:
    """A unique topic name, a folder for its archive, and a client."""
    name = re.sub(r"[^a-zA-Z0-9-]+", "-", f"{request.module.__name__}-{request.node.name}").strip("-")[:200]
    return World(broker.bootstrap, f"{name}-{os.getpid()}", tmp_path / "archive")


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """An S3 server."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@pytest.fixture
def bucket(s3_endpoint: str, spark: SparkSession) -> Bucket:
    """A new bucket."""
    return new_bucket(s3_endpoint, spark)
