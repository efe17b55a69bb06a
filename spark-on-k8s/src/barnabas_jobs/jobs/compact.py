"""`compact`: join the small files of an archive, such as those that a continuous archive commits every minute.

All joined files replace the small ones in one snapshot, beside an archive that goes on. Files that no snapshot names
any more stay for a day, because other runs may be reading them, and a later run removes them.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_tables import DATA, RANGES, ArchiveTables, data_files, for_spark
from barnabas_jobs.files.table_compaction import files_to_join, join_rows, remove_unnamed, replace
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.planning.archived import SCHEMA
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.options import ArchiveOptions, Count, JobResult
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import files_of_table, write_parquet
from barnabas_jobs.spark.status import phase

KEEP_MS: Final = 24 * 3_600_000
"""The time in ms for which files stay that no snapshot names, because runs may still read them, or commit them."""


class Options(ArchiveOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `compact`; a joined file has the records of one day, and at most `commit_records` records."""

    commit_records: Count = 5_000_000


class Result(JobResult, frozen=True, kw_only=True):
    """The result: `joined_files` small files were joined, so `files_before` files became `files_after`.

    `removed_files` is the number of files that no snapshot named any more.
    """

    topic: str
    table: str
    joined_files: int
    files_before: int
    files_after: int
    removed_files: int


class Compaction(NamedTuple):
    """The parameters that all tables of a run share."""

    spark: SparkSession
    tables: ArchiveTables
    records_max: int
    before_ms: int


def run(spark: SparkSession, options: Options, clock: Callable[[], float] = time.time) -> Result:
    """Join the small files of all tables of a topic, and remove files that no snapshot has named for a day.

    Raises JobFailed on failure; what was committed before the failure stays.
    """
    tables = archive_at(spark, options)
    job = Compaction(spark, tables, options.commit_records, int(clock() * 1000) - KEEP_MS)
    found = list(tables.tables(options.topic))
    if not found:
        raise Refused(f"archive={tables}: there is no archive of the topic {options.topic!r}; run `archive` first")
    before = sum(len(data_files(each)) for each in found)
    joined = sum(_join(job, each) for each in found)
    removed = sum(_tidy(job, each) for each in found)
    return Result(
        topic=options.topic,
        table=".".join(found[-1].name()),
        joined_files=joined,
        files_before=before,
        files_after=sum(len(data_files(each)) for each in found),
        removed_files=removed,
    )


def _join(job: Compaction, table: Table) -> int:
    """Join the small files of a data table, and return the number of files that were joined."""
    groups = files_to_join(table, job.records_max)
    new = [uri for group in groups for uri in _joined(job, table, group)]
    old = [each for group in groups for each in group]
    if old:
        replace(table, old, new)
    return len(old)


def _joined(job: Compaction, table: Table, group: Sequence[DataFile]) -> list[str]:
    """Write the records of small files into one new file, which no snapshot names yet, and return its URI."""
    store, records = job.tables.store, sum(each.record_count for each in group)
    folder = job.tables.in_store(f"{table.location()}/{DATA}/joined={uuid.uuid4().hex}")
    if folder is None:
        raise Refused(f"table={table.name()[-1]}: its location {table.location()} is not in archive={job.tables}")
    with spark_failures(f"joining files of {table.name()[-1]}"), phase(job.spark, "joining", records):
        paths = [for_spark(each.file_path) for each in group]
        old = files_of_table(job.spark, paths, has_json=SCHEMA in table.properties)
        given = write_parquet(old.coalesce(1), store.url(folder))
    names = [name for name in store.sizes(folder) if name.endswith(".parquet")]
    store.sync(names)
    if given != records:
        store.remove(folder)
        raise JobFailed(
            f"table={table.name()[-1]}: {len(group)} files were to have {records} records, but have {given}. The "
            "archive is damaged. No file was replaced; run `verify` to list the damage."
        )
    return [f"{job.tables.root}/{name}" for name in names]


def _tidy(job: Compaction, table: Table) -> int:
    """Join the files of the table of ranges, and return the number of removed files of both tables."""
    ranges = job.tables.load(f"{table.name()[-1]}{RANGES}")
    removed = remove_unnamed(job.tables, table, job.before_ms)
    if ranges is not None:
        join_rows(ranges)
        removed += remove_unnamed(job.tables, ranges, job.before_ms)
    return removed
