"""An archive in a bucket while bucket, catalog, network, clock and drivers fail, and while two runs archive at once."""

import itertools
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from catalog_servers import Postgresql, postgresql
from jobs_world import QUIET_S, World
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from started_drivers import driver

from barnabas_jobs.jobs import archive, compact, restore
from barnabas_jobs.planning.archived import OffsetRange
from barnabas_jobs.planning.errors import JobFailed
from harness.buckets import Bucket, Outage, failing_server, new_bucket
from harness.server_process import ServerProcess
from harness.soak import seed

ROUNDS: Final = int(os.environ.get("ROUNDS", "40"))
REQUESTS_MAX: Final = 60
CATALOG_CALLS_MAX: Final = 3
LIFE_S: Final = (2.0, 15.0)
PATIENT: Final = {"s3.request-timeout": "60", "s3.connect-timeout": "60"}
"""The seconds for which PyIceberg waits; its 3 s are too few for an S3 server on a busy machine."""
RUN_S: Final = (0.0, 6.0)
SILENCE_S: Final = (0.5, 8.0)
DAY_S: Final = 86_400.0
WRITTEN: Final = 30
FEW_TRIES: Final = {
    "attempts.maximum": "1",
    "retry.limit": "1",
    "retry.interval": "100ms",
    "retry.throttle.limit": "2",
    "retry.throttle.interval": "100ms",
    "connection.timeout": "5s",
}


class Faults:
    """The faults of the rounds; each runs `archive`, which may fail."""

    def __init__(self, spark: SparkSession, world: World, log: Path, chance: random.Random) -> None:
        self._spark = spark
        self._world = world
        self._log = log
        self._chance = chance
        self.failed: Counter[str] = Counter()

    def bucket(self, outage: Outage) -> None:
        """Let the bucket fail from some request on."""
        outage.left = self._chance.randrange(REQUESTS_MAX)
        try:
            self._archive("bucket")
        finally:
            outage.left = None

    def answers(self) -> None:
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
            self._archive("answers")

    def catalog(self, server: Postgresql) -> None:
        """Let the catalog's server crash at any moment, and start again after the run."""
        crash = threading.Timer(self._chance.uniform(*RUN_S), server.kill)
        crash.start()
        self._archive("catalog")
        crash.join()
        server.start()

    def network(self, broker: ServerProcess) -> None:
        """Let the broker answer nobody for a while, as behind a network that drops everything."""
        ends = [threading.Timer(self._chance.uniform(*RUN_S), broker.pause)]
        ends.append(threading.Timer(ends[0].interval + self._chance.uniform(*SILENCE_S), broker.resume))
        for each in ends:
            each.start()
        self._archive("network")
        for each in ends:
            each.join()

    def clock(self) -> None:
        """Let the clock jump by up to a day between any two looks at it."""
        self._archive("clock", lambda: time.time() + self._chance.uniform(-DAY_S, DAY_S))

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
            runs: list[Future[Any]] = [pool.submit(self._archive, "two runs") for _ in range(2)]
            if self._world.tables(self._spark).topics(self._world.topic):
                runs.append(pool.submit(compact.run, self._spark.newSession(), joining))
            for each in runs:
                each.result()

    def _archive(self, kind: str, clock: Callable[[], float] = time.time) -> None:
        options = msgspec.convert({**self._world.options(), "commit_records": 10}, archive.Options)
        try:
            archive.run(self._spark.newSession(), options, clock)
        except JobFailed as failure:
            self.failed[kind] += 1
            print(f"{kind}: {str(failure)[:200]}", flush=True)


@pytest.mark.soak(only=True)
@pytest.mark.timeout(3600)
def test_no_fault_makes_an_archive_lose_an_offset_or_archive_one_twice(
    spark: SparkSession, world: World, broker: ServerProcess, tmp_path: Path
) -> None:
    chance, outage = random.Random(seed()), Outage()
    with failing_server(outage) as endpoint, postgresql() as server:
        bucket = new_bucket(endpoint, spark)
        few_tries(spark, bucket)
        world.at(bucket.location, {"type": "sql", "uri": server.uri, **PATIENT}).make()
        faults = Faults(spark, world, tmp_path / "driver.log", chance)
        kinds: dict[str, Callable[[], None]] = {
            "bucket": lambda: faults.bucket(outage),
            "answers": faults.answers,
            "driver": faults.driver,
            "catalog": lambda: faults.catalog(server),
            "two runs": faults.two_runs,
            "network": lambda: faults.network(broker),
            "clock": faults.clock,
        }
        for number, kind in zip(range(ROUNDS), itertools.cycle(kinds), strict=False):
            began_s = time.monotonic()
            world.write(WRITTEN)
            kinds[kind]()
            world.archive(spark)
            check_ranges(spark, world)
            print(f"round {number}: {kind}, {time.monotonic() - began_s:.0f} s", flush=True)
        print(f"runs that failed: {dict(faults.failed)}")
        assert min(faults.failed[each] for each in ("bucket", "answers", "driver", "catalog")) > 0
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
