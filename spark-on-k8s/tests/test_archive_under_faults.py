"""An archive in a bucket while bucket, catalog and drivers fail, and while two runs archive at once."""

import random
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from buckets import Bucket, new_bucket
from jobs_world import QUIET_S, World
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from started_drivers import driver
from werkzeug.serving import make_server

from barnabas_jobs.jobs import archive, compact, restore
from barnabas_jobs.planning.archived import OffsetRange
from barnabas_jobs.planning.errors import JobFailed
from harness.soak import seed

ROUNDS: Final = 40
REQUESTS_MAX: Final = 60
CATALOG_CALLS_MAX: Final = 3
LIFE_S: Final = (2.0, 15.0)
WRITTEN: Final = 30
FEW_TRIES: Final = {"attempts.maximum": "1", "retry.limit": "1", "retry.interval": "100ms", "connection.timeout": "5s"}


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
    whole = DomainDispatcherApplication(create_backend_app)

    def failing(environ: dict[str, Any], start_response: Any) -> Any:
        if outage.fails():
            start_response("503 Service Unavailable", [])
            return [b""]
        return whole(environ, start_response)

    server = make_server("127.0.0.1", 0, failing, threaded=True, request_handler=MotoRequestHandler)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        serving.join()


class Faults:
    """The faults of the rounds; each runs `archive`, which may fail."""

    def __init__(self, spark: SparkSession, world: World, outage: Outage, log: Path, chance: random.Random) -> None:
        self._spark = spark
        self._world = world
        self._outage = outage
        self._log = log
        self._chance = chance
        self.failed: Counter[str] = Counter()

    def bucket(self) -> None:
        """Let the bucket fail from some request on."""
        self._outage.left = self._chance.randrange(REQUESTS_MAX)
        try:
            self._archive(self._spark, "bucket")
        finally:
            self._outage.left = None

    def catalog(self) -> None:
        """Let the catalog fail at some commit, before it or after it: then only its answer is lost."""
        real, left, after = SqlCatalog.commit_table, [self._chance.randrange(CATALOG_CALLS_MAX)], self._chance.random()

        def commit_table(*given: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                return real(*given)
            if after < 0.5:  # Each of both is as likely.
                real(*given)
            raise ConnectionError("the catalog is gone")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SqlCatalog, "commit_table", commit_table)
            self._archive(self._spark, "catalog")

    def driver(self) -> None:
        """Kill a driver at any moment."""
        where = {f"catalog.{name}": value for name, value in self._world.catalog.items()}
        with driver(self._spark, self._world, self._log, commit_records=10, **where) as process:
            try:
                process.wait(self._chance.uniform(*LIFE_S))
            except subprocess.TimeoutExpired:
                self.failed["driver"] += 1

    def two_runs(self) -> None:
        """Archive in two runs at once, while small files are joined."""
        joining = compact.Options(topic=self._world.topic, archive=self._world.location, catalog=self._world.catalog)
        with ThreadPoolExecutor(3) as pool:
            for _ in range(2):
                pool.submit(self._archive, self._spark.newSession(), "two runs")
            if self._world.tables(self._spark).topics(self._world.topic):
                pool.submit(compact.run, self._spark.newSession(), joining).result()

    def _archive(self, spark: SparkSession, kind: str) -> None:
        try:
            archive.run(spark, msgspec.convert({**self._world.options(), "commit_records": 10}, archive.Options))
        except JobFailed:
            self.failed[kind] += 1


@pytest.mark.soak(only=True)
@pytest.mark.timeout(3600)
def test_no_fault_makes_an_archive_lose_an_offset_or_archive_one_twice(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    chance, outage = random.Random(seed()), Outage()
    with failing_server(outage) as endpoint:
        bucket = new_bucket(endpoint, spark)
        few_tries(spark, bucket)
        world.at(bucket.location, {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}).make()
        faults = Faults(spark, world, outage, tmp_path / "driver.log", chance)
        kinds: list[Callable[[], None]] = [faults.bucket, faults.catalog, faults.driver, faults.two_runs]
        for number in range(ROUNDS):
            world.write(WRITTEN)
            kinds[number % len(kinds)]()
            world.archive(spark)
            check_ranges(spark, world)
        print(f"runs that failed: {dict(faults.failed)}")
        assert min(faults.failed[each] for each in ("bucket", "catalog", "driver")) > 0
        assert world.archived(spark) == world.read()
        assert world.verify(spark).fine
        into = f"{world.topic}-into"
        chosen = msgspec.convert({**world.options(), "into": into, "create": True}, restore.Options)
        restore.run(spark, chosen, quiet_s=QUIET_S)
        assert [each[2:] for each in world.read(into)] == [each[2:] for each in world.read()]


def few_tries(spark: SparkSession, bucket: Bucket) -> None:
    """Let Hadoop's client give up soon."""
    hadoop: Any = spark._jsc.hadoopConfiguration()
    for name, value in FEW_TRIES.items():
        hadoop.set(f"fs.s3a.bucket.{bucket.name}.{name}", value)


def check_ranges(spark: SparkSession, world: World) -> None:
    """Check that the ranges of all commits follow one another, and end where the topic ends."""
    table = world.tables(spark).load(f"{world.topic}$ranges")
    assert table is not None
    rows = table.scan(selected_fields=("commit", "partition", "start", "end")).to_arrow().sort_by("commit").to_pylist()
    ends: dict[int, int] = {}
    for each in rows:
        assert each["start"] == ends.get(each["partition"], 0), rows
        ends[each["partition"]] = each["end"]
    assert ends == {partition: world.client.ends(world.topic, partition)[1] for partition in ends}
    spans = [OffsetRange(partition, 0, end) for partition, end in sorted(ends.items())]
    assert world.archived_topic(spark).spans() == spans
