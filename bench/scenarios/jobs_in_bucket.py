"""The requests of an archive in a bucket, beside those of a plain read of Spark's connector to Parquet there.

A bucket's owner pays for requests, so the row counts them. The server is moto's, in this process. The catalog is a
file of SQLite, so no request is the catalog's. The first commit writes all records, and the second one few more.
"""

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.metrics import Measurement
from bench.scenarios.jobs import PARTITIONS, fill, plain_copy, session_of_jobs
from bench.scenarios.stand import Stand
from bench.topics import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_RECORDS: Final = 1000
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
            return _counts(spark, bootstrap, topic, f"sqlite:///{folder}/catalog.db")
        finally:
            shutil.rmtree(folder)


def _counts(spark: "SparkSession", bootstrap: str, topic: str, catalog: str) -> Measurement:
    from barnabas_jobs.jobs import archive
    from harness.buckets import new_bucket, s3_server

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # It logs all requests.
    counted = Counter[str]()
    with s3_server(partial(_count, counted)) as endpoint:
        location = new_bucket(endpoint, spark).location
        chosen: dict[str, Any] = {"bootstrap": bootstrap, "topic": topic, "archive": location}
        options = archive.Options(**chosen, catalog={"type": "sql", "uri": catalog}, commit_records=10**12)
        plain = _counted(counted, lambda: plain_copy(spark, bootstrap, topic, f"{location}-plain"))
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


def _count(counted: Counter[str], environ: dict[str, Any]) -> bool:
    """Count a request by its method; the server rejects none."""
    counted["LIST" if "list-type=" in environ["QUERY_STRING"] else environ["REQUEST_METHOD"]] += 1
    return False


def _counted(counted: Counter[str], do: Callable[[], object]) -> Counter[str]:
    before = counted.copy()
    do()
    return counted - before


def _dear(counted: Counter[str]) -> float:
    return float(sum(counted[each] for each in DEAR))
