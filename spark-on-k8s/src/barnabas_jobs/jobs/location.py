"""The places that the options of jobs name: the folder or bucket of an archive, and the folder of a report."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_tables import ArchiveTables
from barnabas_jobs.files.report_folder import new_report
from barnabas_jobs.files.store import LocalFolder, Store
from barnabas_jobs.planning.options import ArchiveOptions, in_bucket
from barnabas_jobs.spark.object_store import ObjectStore, for_tables

RUN: Final = "spark.barnabas.run"
"""The Spark setting with the name of the run; the program that starts drivers gives it to all attempts of a run."""


def archive_at(spark: SparkSession, options: ArchiveOptions) -> ArchiveTables:
    """Return the tables of the archive that the options name.

    Tables in a bucket are read and written with the keys, endpoint and region that Spark has for the bucket, unless the
    option `catalog` has others. Raises JobFailed if the bucket cannot be reached.
    """
    location = options.archive
    given = {**(for_tables(spark, location) if in_bucket(location) else {}), **options.catalog}
    return ArchiveTables(location, given, options.namespace, store_at(spark, location))


def store_at(spark: SparkSession, location: str, option: str = "archive") -> Store:
    """Return the local folder at a path, or the object store at a URL.

    Raises JobFailed if the bucket of the URL cannot be reached.
    """
    return ObjectStore(spark, location, option) if in_bucket(location) else LocalFolder(location, option)


class Report(NamedTuple):
    """A report that a job writes: tables as Parquet, the result as JSON, and an HTML page."""

    spark: SparkSession
    folder: Path

    def add_table(self, name: str, schema: str, rows: Iterable[tuple[Any, ...]]) -> None:
        """Write a table to one Parquet file."""
        table = self.spark.createDataFrame(list(rows), schema).coalesce(1)
        table.write.parquet(str(self.folder / f"{name}.parquet"))

    def add_result(self, name: str, result: msgspec.Struct, page: str) -> None:
        """Write the result of the job, and its HTML page."""
        (self.folder / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
        (self.folder / f"{name}.html").write_text(page, encoding="utf-8")


@contextmanager
def report_at(spark: SparkSession, path: str) -> Iterator[Report]:
    """Yield a report that appears at `path` when the block ends. Raises JobFailed if it cannot be written there."""
    with new_report(path, spark.conf.get(RUN, None) or None) as folder:
        yield Report(spark, folder)
