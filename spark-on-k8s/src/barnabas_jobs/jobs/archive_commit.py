"""One commit of an archive: write records to a new folder, sync and count them, and commit them to the table."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from barnabas_jobs.files.store import Store
from barnabas_jobs.files.table_writer import TableWriter
from barnabas_jobs.kafka.last_records import LastRecord, last_records
from barnabas_jobs.kafka.topics import Cluster, Topic, check_same_id
from barnabas_jobs.planning.archived import Commit, PartitionRange
from barnabas_jobs.planning.committed import Committed
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ranges import OffsetRange
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.json_columns import JsonColumns
from barnabas_jobs.spark.phases import phase
from barnabas_jobs.spark.records import Counted, counts, with_true_timestamps, write_parquet

FILE_OFFSETS: Final = 250_000
"""The number of offsets for which a commit has another file; a file for each partition would be many small ones."""


class Run(NamedTuple):
    """The parameters that all commits of a run share; `columns` are the columns into which JSON values are parsed."""

    spark: SparkSession
    cluster: Cluster
    writer: TableWriter
    store: Store
    topic: Topic
    columns: JsonColumns | None
    clock: Callable[[], float]


class Written(NamedTuple):
    """The written files with their sizes, which no snapshot names yet, and the counts of their records by partition."""

    run: str
    files: Mapping[str, int]
    found: Mapping[int, Counted]


def write(job: Run, records: DataFrame, ranges: list[OffsetRange], offsets: int | None = None) -> Written:
    """Write the records of these ranges to files in a new folder, and count the records in these files.

    `offsets` is the number of offsets that the whole run is to archive, which is needed to report its progress. If
    there are no records, the folder is removed. If writing fails, remove the folder and raise JobFailed.
    """
    run = job.writer.new_run()
    folder = job.writer.folder(run)
    tasks = max(1, -(-sum(each.offsets for each in ranges) // FILE_OFFSETS))
    try:
        with spark_failures(f"archiving {job.topic.name}"):
            true = with_true_timestamps(records.coalesce(tasks))
            with phase(job.spark, "archiving", offsets):
                given = write_parquet(job.columns.added(true) if job.columns else true, job.store.url(folder))
            files = _synced(job.store, folder)
            if not files:  # No file was written, because `records` has no record, so the folder is useless.
                job.store.remove(folder)
            found = counts(job.spark, [job.store.url(name) for name in files])
        _check_all_found(folder, given, sum(each.records for each in found.values()))
        return Written(run, files, found)
    except JobFailed:
        job.store.remove(folder)
        raise


def _synced(store: Store, folder: str) -> dict[str, int]:
    """Make the data files in a folder survive a power cut, and return them with their sizes."""
    sizes = store.sizes(folder)
    # Hadoop checks a data file against the checksums in its .crc file, so sync both.
    store.sync(name for name in sizes if name.endswith((".parquet", ".parquet.crc")))
    return {name: size for name, size in sizes.items() if name.endswith(".parquet")}


def _check_all_found(folder: str, given: int, found: int) -> None:
    """Raise JobFailed unless the files hold as many records as were written; the store may list a file late."""
    if given != found:
        raise JobFailed(
            f"{folder}: {given} records were written, but the files in the store hold {found} records, so nothing "
            "of this commit counts; let all executors write to the same volume as the driver, and run the job again"
        )


def commit(
    job: Run, committed: Committed, written: Written, ranges: list[OffsetRange], lost: list[OffsetRange]
) -> None:
    """Commit the files and ranges to the table, and add them to `committed`.

    Raises JobFailed if records in the files are outside the ranges, if the topic was deleted and created again, or if
    another run has committed.
    """
    now = check_same_id(job.cluster, job.topic)
    last = last_records(job.cluster.bootstrap, job.topic.name, {each.partition: each.end for each in ranges})
    made = Commit(
        number=job.writer.number,
        run=written.run,
        committed_at_ms=int(job.clock() * 1000),
        ranges=(
            *(PartitionRange(*each, None, None, 0, lost=True) for each in lost),
            *(_archived(each, written.found.get(each.partition), last.get(each.partition)) for each in ranges),
            *_unchanged(job, {each.partition for each in ranges}),
        ),
        groups=job.cluster.group_offsets(now),
    )
    config = job.cluster.own_config(job.topic.name)
    schema = job.columns.ddl if job.columns else None
    job.writer.commit(made, list(written.files), len(now.partitions), config, schema)
    mismatched = sum(each.mismatched for each in written.found.values())
    committed.add(made, sum(written.files.values()), mismatched)


def _archived(wanted: OffsetRange, found: Counted | None, last: LastRecord | None) -> PartitionRange:
    """Return the archived range with the number of its records.

    Raises JobFailed if the files have records outside the range, or more records than the range has offsets.
    """
    if found and (found.records > wanted.offsets or found.first < wanted.start or found.last >= wanted.end):
        raise JobFailed(
            f"{wanted}: the files hold {found.records} records with offsets {found.first} to {found.last}, which "
            "do not fit this range"
        )
    epoch, checksum = last or (None, None)
    return PartitionRange(*wanted, epoch, checksum, found.records if found else 0)


def _unchanged(job: Run, partitions: set[int]) -> Iterator[PartitionRange]:
    """Yield an empty range for each archived partition that has no new record, so that each commit names all."""
    head = job.writer.head
    for partition, tail in sorted(head.tails.items()) if head else ():
        if partition not in partitions:
            yield PartitionRange(partition, tail.end, tail.end, tail.epoch, tail.checksum, 0)
