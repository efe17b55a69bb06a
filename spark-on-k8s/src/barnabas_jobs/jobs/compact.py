"""`compact`: join the small files of an archive, such as those that a continuous archive commits every minute.

All joined files replace the small ones in one snapshot, beside an archive that goes on. Files that no snapshot names
any more stay for a day, because other runs may be reading them, and a later run removes them.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_tables import (
    DATA,
    RANGES,
    REJECTED,
    ArchiveTables,
    ancestors,
    as_job_failed,
    columns_of,
    data_files,
    for_spark,
    newest_head,
    properties_of,
)
from barnabas_jobs.files.table_writer import RANGES_KEPT, SNAPSHOTS_KEPT, change, expire
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.planning.archived import COMMIT, carried
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.options import ArchiveOptions, Count, JobResult
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import files_of_table, write_parquet
from barnabas_jobs.spark.status import phase

ROWS_OF_FILE: Final = 200_000
"""The largest number of rows in a file of a table of ranges."""
METADATA: Final = "metadata"
FOLDERS: Final = (DATA, METADATA)
CHECKSUM: Final = ".crc"


def files_to_join(table: Table, records_max: int) -> list[list[DataFile]]:
    """Return groups of two or more small files of one day, each with at most `records_max` records in all.

    A file with half as many records is large enough, so that a file is not written again for each few new records.
    """
    by_day: dict[object, list[DataFile]] = {}
    for file in data_files(table):
        if file.record_count * 2 <= records_max:
            by_day.setdefault((file.spec_id, file.partition), []).append(file)
    groups = [group for files in by_day.values() for group in _groups(files, records_max)]
    return [group for group in groups if len(group) > 1]


def _groups(files: Iterable[DataFile], records_max: int) -> list[list[DataFile]]:
    """Return all files, in the order of their names, in groups of at most `records_max` records."""
    found: list[list[DataFile]] = []
    records = 0
    for file in sorted(files, key=lambda each: each.file_path):
        if not found or records + file.record_count > records_max:
            found.append([])
            records = 0
        found[-1].append(file)
        records += file.record_count
    return found


def replace(table: Table, old: Sequence[DataFile], new: Sequence[str], kept: int = SNAPSHOTS_KEPT) -> None:
    """Replace files of the table by new ones in one commit, which carries the end of the archive on.

    An archive may commit at the same time; then commit again after it. Raises JobFailed if another program has removed
    one of the old files, or if the outcome of the commit is unknown. The new files may then be in no snapshot, so a
    later run removes them.
    """
    with as_job_failed(f"table={table.name()[-1]}: the joined files cannot be read"):
        made = [parquet_file_to_data_file(table.io, table.metadata, uri) for uri in new]

    def overwrite(transaction: Transaction) -> None:
        expire(transaction, kept)
        with transaction.update_snapshot(snapshot_properties=_carried(table)).overwrite() as snapshot:
            for each in made:
                snapshot.append_data_file(each)
            for each in old:
                snapshot.delete_data_file(each)

    change(table, overwrite, "the joined files cannot be committed")


def _carried(table: Table) -> dict[str, str]:
    """Return the properties of the newest snapshot of ours."""
    own = (dict(properties_of(each)) for each in ancestors(table))
    return next((carried(each) for each in own if COMMIT in each), {})


def join(
    table: Table, records_max: int, joined: Callable[[Sequence[DataFile]], list[str]], kept: int = SNAPSHOTS_KEPT
) -> int:
    """Join the small files of a table, and return the number of files that were joined.

    `joined` writes the records of some files to new files, which no snapshot names yet, and returns their URIs.
    """
    groups = files_to_join(table, records_max)
    new = [uri for group in groups for uri in joined(group)]
    old = [each for group in groups for each in group]
    if old:
        replace(table, old, new, kept)
    return len(old)


def join_rows(table: Table) -> int:
    """Join the small files of a table of ranges, and return the number of files that were joined."""
    with as_job_failed(f"table={table.name()[-1]}: the files cannot be joined"):
        return join(table, ROWS_OF_FILE, partial(_joined_rows, table), RANGES_KEPT)


def _joined_rows(table: Table, group: Sequence[DataFile]) -> list[str]:
    parts = []
    for each in group:
        with table.io.new_input(each.file_path).open() as file:
            parts.append(pq.read_table(file))
    uri = f"{table.location()}/{DATA}/joined-{uuid.uuid4().hex}.parquet"
    rows = pa.concat_tables(parts).sort_by([("commit", "ascending"), ("partition", "ascending")])
    with table.io.new_output(uri).create() as file:
        pq.write_table(rows, file, compression="zstd")
    return [uri]


def remove_unnamed(tables: ArchiveTables, table: Table, before_ms: int, newest: str | None = None) -> int:
    """Remove the files that no snapshot names and that were written before a time, and return their number.

    They were written by interrupted runs, or joined into larger files and named by snapshots that have expired. Files
    of the newest run stay: if it died after its commit, the next run adds them to the other tables of the topic.
    """
    location = tables.in_store(table.location())
    if location is None:
        return 0
    # The old files are listed before the names are read, and no run needs a day from its file to its commit.
    store = tables.store
    old = {name for folder in FOLDERS for name in store.older(f"{location}/{folder}", before_ms)}
    named = _named(table) if old else set()
    unnamed = {name for name in old if _place(f"{tables.root}/{_of_checksum(name)}") not in named}
    gone = {name for name in unnamed if newest is None or newest not in name}
    young = set(store.sizes(f"{location}/{DATA}")) - gone if gone else set()
    depth = len(f"{location}/{DATA}/".split("/"))
    kept, folders = ({"/".join(name.split("/")[:depth]) for name in names} for names in (young, gone))
    for folder in sorted(folders - kept):
        store.remove(folder)
    for name in sorted(gone):
        if "/".join(name.split("/")[:depth]) in kept:
            store.remove(name)
    return len(gone)


def _of_checksum(name: str) -> str:
    """Return the file whose checksums Hadoop's file `.NAME.crc` has; return the name of any other file."""
    folder, _, file = name.rpartition("/")
    of_checksum = file.startswith(".") and file.endswith(CHECKSUM)
    return f"{folder}/{file[1:].removesuffix(CHECKSUM)}" if of_checksum else name


def _named(table: Table) -> set[str]:
    """Return the places of all files that the table's metadata names."""
    metadata = table.metadata
    found = {table.metadata_location, *(each.metadata_file for each in metadata.metadata_log)}
    found |= {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    manifests = {}
    with as_job_failed(f"table={table.name()[-1]}: the table cannot be read"):
        for snapshot in metadata.snapshots:
            found.add(snapshot.manifest_list)
            manifests.update({each.manifest_path: each for each in snapshot.manifests(table.io)})
        for path, manifest in manifests.items():
            found.add(path)
            found |= {each.data_file.file_path for each in manifest.fetch_manifest_entry(table.io)}
    return set(map(_place, found))


def _place(uri: str) -> str:
    """Return bucket and path of a URI, because programs write a place in several forms, as `file:/` and `s3a:`."""
    split = urlsplit(uri)
    return f"{split.netloc}{split.path}"


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
    before = sum(1 for each in found for _ in data_files(each))
    joined = sum(_join(job, each) for each in found)
    removed = sum(_tidy(job, each) for each in found)
    return Result(
        topic=options.topic,
        table=".".join(found[-1].name()),
        joined_files=joined,
        files_before=before,
        files_after=sum(1 for each in found for _ in data_files(each)),
        removed_files=removed,
    )


def _join(job: Compaction, table: Table) -> int:
    """Join the small files of a data table, and return the number of files that were joined."""
    return join(table, job.records_max, partial(_joined, job, table))


def _joined(job: Compaction, table: Table, group: Sequence[DataFile]) -> list[str]:
    """Write the records of small files into one new file, which no snapshot names yet, and return its URI."""
    store, records = job.tables.store, sum(each.record_count for each in group)
    folder = job.tables.in_store(f"{table.location()}/{DATA}/joined={uuid.uuid4().hex}")
    if folder is None:
        raise Refused(f"table={table.name()[-1]}: its location {table.location()} is not in archive={job.tables}")
    with spark_failures(f"joining files of {table.name()[-1]}"), phase(job.spark, "joining", records):
        paths = [for_spark(each.file_path) for each in group]
        old = files_of_table(job.spark, paths, columns_of(table))
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
    """Join the files of the topic's other tables, and return the number of removed files of all."""
    ranges, rejected = (job.tables.load(f"{table.name()[-1]}{each}") for each in (RANGES, REJECTED))
    removed = remove_unnamed(job.tables, table, job.before_ms)
    head = newest_head(table)
    for other, join in ((ranges, join_rows), (rejected, partial(_join, job))):
        if other is not None:
            join(other)
            removed += remove_unnamed(job.tables, other, job.before_ms, head.run if head else None)
    return removed
