"""A topic to Parquet and back with Spark: the jobs `archive` and `restore` beside a plain read of Spark's connector.

Keys are skewed: each second record has the first key, each fourth the second, and so on. All jobs run on two cores
with the same memory of one JVM for any number of records. The restored topic must be equal, or the row is not run.
"""

import random
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.processes import family, peak_rss_mb
from bench.scenarios.stand import Stand
from bench.topics import create

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS: Final = 6
KEYS: Final = 40
VALUE_BYTES: Final = 200
SEED: Final = 1
MEMORY: Final = "1g"
WARM_UPS: Final = 2
WARM_RECORDS: Final = 500_000
FLUSH_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class SparkJobs:
    """Jobs over this many records of 200 bytes."""

    records: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Run each job once in a warm JVM: the first run of each takes three times the CPU."""
        bootstrap = stand.brokers.standing(peer).bootstrap
        warm, topic = stand.new_topic_name(), stand.new_topic_name()
        create(bootstrap, [warm, topic], PARTITIONS)
        fill(bootstrap, warm, min(self.records, WARM_RECORDS))
        megabytes = fill(bootstrap, topic, self.records) / 1e6
        folder = Path(tempfile.mkdtemp(prefix="bench-jobs-"))
        try:
            spark = session_of_jobs()
            _warm_up(spark, bootstrap, warm, folder)
            return _measured(spark, bootstrap, topic, folder, megabytes)
        finally:
            shutil.rmtree(folder)


def session_of_jobs() -> "SparkSession":
    """Return the session of this run, with the client of S3. Raises NotRun if Spark or a jar is missing."""
    try:
        from barnabas_jobs.app.connector import default_folder, session
        from barnabas_jobs.spark.failures import ONE_TASK_EACH
    except ImportError as error:
        raise NotRun(f"PySpark is not there: {error}") from None
    from barnabas_jobs.planning.errors import JobFailed

    try:
        return session("local[2]", default_folder(), {**ONE_TASK_EACH, "spark.driver.memory": MEMORY}, s3=True)
    except JobFailed as error:
        raise NotRun(str(error)) from None


def _warm_up(spark: "SparkSession", bootstrap: str, topic: str, folder: Path) -> None:
    from barnabas_jobs.jobs import archive, restore

    for turn in range(WARM_UPS):
        plain_copy(spark, bootstrap, topic, str(folder / f"warm-{turn}"))
        chosen: dict[str, Any] = {
            "bootstrap": bootstrap,
            "topic": topic,
            "archive": str(folder / f"warm-archive-{turn}"),
        }
        archive.run(spark, archive.Options(**chosen))
    restore.run(spark, restore.Options(**chosen, into=f"{topic}-restored", create=True))


def _measured(spark: "SparkSession", bootstrap: str, topic: str, folder: Path, megabytes: float) -> Measurement:
    from barnabas_jobs.jobs import archive, restore, verify

    chosen: dict[str, Any] = {"bootstrap": bootstrap, "topic": topic, "archive": str(folder / "archive")}
    into = f"{topic}-restored"
    plain_s = _seconds(lambda: plain_copy(spark, bootstrap, topic, str(folder / "plain")))
    archive_s = _seconds(lambda: archive.run(spark, archive.Options(**chosen)))
    restore_s = _seconds(lambda: restore.run(spark, restore.Options(**chosen, into=into, create=True)))
    compared = verify.run(spark, verify.Options(**chosen, against=into))
    if not compared.fine:
        raise NotRun(f"what was restored differs: {compared.summary}")
    return {
        "plain_mb_per_s": megabytes / plain_s,
        "archive_mb_per_s": megabytes / archive_s,
        "archive_to_plain": plain_s / archive_s,
        "restore_mb_per_s": megabytes / restore_s,
        "spark_mb": _peak_mb(spark),
        "objects": float(sum(each.is_file() for each in (folder / "archive").rglob("*"))),
    }


def _peak_mb(spark: "SparkSession") -> float:
    """Return the largest memory of the JVM and its Python workers since their start, in MB."""
    gateway: Any = spark.sparkContext._gateway
    return sum(peak_rss_mb(each) for each in family(gateway.proc.pid))


def plain_copy(spark: "SparkSession", bootstrap: str, topic: str, folder: str) -> None:
    """Write Parquet with the archive's compression, which is not Spark's default."""
    source = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    spark.read.format("kafka").options(**source).load().write.parquet(folder, compression="zstd")


def _seconds(do: Callable[[], object]) -> float:
    began_s = time.monotonic()
    do()
    return time.monotonic() - began_s


def fill(bootstrap: str, topic: str, records: int) -> int:
    """Write the records; return the bytes of keys and values. Values are half random, so compression helps."""
    chance = random.Random(SEED)
    values = [chance.randbytes(VALUE_BYTES // 2) + bytes(VALUE_BYTES // 2) for _ in range(1000)]
    keys = [b"key-%02d" % number for number in range(KEYS)]
    refused: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "compression.type": "lz4", "acks": "all"})
    for number in range(records):
        # This is the number of trailing zero bits: each second record has none, each fourth has one, and so on.
        key = keys[min(KEYS - 1, (number + 1 & -(number + 1)).bit_length() - 1)]
        while True:
            try:
                producer.produce(topic, values[number % 1000], key, on_delivery=note)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(FLUSH_S) or refused:
        raise NotRun(f"the topic was not filled: {refused[:1]}")
    return records * (VALUE_BYTES + len(keys[0]))
