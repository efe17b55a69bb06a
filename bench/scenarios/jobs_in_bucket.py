"""The requests of an archive in a bucket, beside those of a plain read of Spark's connector to Parquet there.

A bucket's owner pays for requests, so the row counts them. The server is moto's, in this process. The catalog is a
file of SQLite, so no request is the catalog's. The first commit writes all records, and the second one few more.
"""

import logging
import shutil
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.scenarios.jobs import PARTITIONS, fill, plain_copy, session_of_jobs
from bench.scenarios.stand import Stand
from bench.topics import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_RECORDS: Final = 1000
LOGIN: Final = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
DEAR: Final = frozenset(("PUT", "POST", "LIST"))
"""The requests that cost ten times as much as others at Amazon. There, DELETE costs nothing."""


@dataclass(frozen=True, slots=True)
class RequestsOfJobs:
    """The requests for this many records of 200 bytes."""

    records: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Count the requests of a plain copy, of a first commit of all records, and of a second one of few."""
        bootstrap, topic = stand.brokers.standing(peer).bootstrap, stand.new_topic_name()
        create(bootstrap, [topic], PARTITIONS)
        fill(bootstrap, topic, self.records)
        spark = session_of_jobs()
        folder = Path(tempfile.mkdtemp(prefix="bench-jobs-"))
        try:
            bucket = f"bench-{uuid.uuid4().hex[:12]}"  # Hadoop keeps the client of each bucket, with its endpoint.
            with _counting_server(bucket) as (endpoint, counted):
                _configure(spark, bucket, endpoint)
                return _counts(spark, bootstrap, topic, f"sqlite:///{folder}/catalog.db", bucket, counted)
        finally:
            shutil.rmtree(folder)


def _counts(
    spark: "SparkSession", bootstrap: str, topic: str, catalog: str, bucket: str, counted: Counter[str]
) -> Measurement:
    from barnabas_jobs.jobs import archive

    chosen: dict[str, Any] = {"bootstrap": bootstrap, "topic": topic, "archive": f"s3a://{bucket}/archive"}
    options = archive.Options(**chosen, catalog={"type": "sql", "uri": catalog}, commit_records=10**12)
    plain = _counted(counted, lambda: plain_copy(spark, bootstrap, topic, f"s3a://{bucket}/plain"))
    first = _counted(counted, lambda: archive.run(spark, options))
    fill(bootstrap, topic, FEW_RECORDS)
    later = _counted(counted, lambda: archive.run(spark, options))
    return {
        "archive_requests": float(first.total()),
        "archive_dear": _dear(first),
        "plain_requests": float(plain.total()),
        "plain_dear": _dear(plain),
        "next_requests": float(later.total()),
        "next_dear": _dear(later),
    }


def _counted(counted: Counter[str], do: Callable[[], object]) -> Counter[str]:
    before = counted.copy()
    do()
    return counted - before


def _dear(counted: Counter[str]) -> float:
    return float(sum(counted[each] for each in DEAR))


@contextmanager
def _counting_server(bucket: str) -> Iterator[tuple[str, Counter[str]]]:
    """Run an S3 server with this bucket, and yield its address and the number of requests by method."""
    try:
        import boto3
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
        from werkzeug.serving import make_server
    except ImportError as error:
        raise NotRun(f"the S3 server is not there: {error}") from None
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # It logs all requests.
    whole, counted = DomainDispatcherApplication(create_backend_app), Counter[str]()

    def counting(environ: dict[str, Any], start_response: Any) -> Any:
        counted["LIST" if "list-type=" in environ["QUERY_STRING"] else environ["REQUEST_METHOD"]] += 1
        return whole(environ, start_response)

    server = make_server("127.0.0.1", 0, counting, threaded=True, request_handler=MotoRequestHandler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    endpoint = f"http://127.0.0.1:{server.port}"
    try:
        boto3.client("s3", endpoint_url=endpoint, **LOGIN).create_bucket(Bucket=bucket)
        yield endpoint, counted
    finally:
        server.shutdown()
        serving.join()


def _configure(spark: "SparkSession", bucket: str, endpoint: str) -> None:
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
