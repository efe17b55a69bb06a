"""One commit of an archive: write records to a new folder, sync and count them, and add a ledger entry."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.kafka.topics import Cluster, Topic, check_same_id
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import ArchivedRange, DataFile, Entry, LostRange
from barnabas_jobs.planning.ranges import OffsetRange
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.json_columns import JsonColumns
from barnabas_jobs.spark.phases import phase
from barnabas_jobs.spark.records import Counted, counts, with_true_timestamps, write_parquet


class Run(NamedTuple):
    """The parameters that all commits of a run share; `columns` are the columns into which JSON values are parsed."""

    spark: SparkSession
    cluster: Cluster
    folder: ArchiveFolder
    topic: Topic
    columns: JsonColumns | None
    clock: Callable[[], float]


class Written(NamedTuple):
    """The written files, which no ledger entry names yet, and by partition the counts of the records in these files."""

    files: list[DataFile]
    found: Mapping[int, Counted]


def write(job: Run, number: int, records: DataFrame, offsets: int | None = None) -> Written:
    """Write records to files in a new folder, and count the records in these files.

    `offsets` is the number of offsets that the whole run is to archive, which is needed to report its progress. If
    there are no records, the folder is removed. If writing fails, remove the folder and raise JobFailed.
    """
    run_folder = job.folder.new_run(job.topic.topic_id, number)
    try:
        with spark_failures(f"archiving {job.topic.name}"):
            true = with_true_timestamps(records)
            with phase(job.spark, "archiving", offsets):
                given = write_parquet(
                    job.columns.added(true) if job.columns else true, job.folder.store.url(run_folder)
                )
            files = job.folder.synced(run_folder)
            if not files:  # No file was written, because `records` has no record, so the folder is useless.
                job.folder.store.remove(run_folder)
            paths = [job.folder.store.url(file.path) for file in files]
            found = counts(job.spark, job.folder.data, paths)
        _check_all_found(run_folder, given, sum(each.records for each in found.values()))
        return Written(files, found)
    except JobFailed:
        job.folder.store.remove(run_folder)
        raise


def _check_all_found(run_folder: str, given: int, found: int) -> None:
    """Raise JobFailed unless the files hold as many records as were written; the store may list a file late."""
    if given != found:
        raise JobFailed(
            f"{run_folder}: {given} records were written, but the files in the store hold {found} records, so nothing "
            "of this commit counts; let all executors write to the same volume as the driver, and run the job again"
        )


def commit(job: Run, number: int, written: Written, ranges: list[OffsetRange], lost: list[LostRange]) -> Entry:
    """Commit the files with a ledger entry, and return the entry.

    Raises JobFailed if records in the files are outside the ranges, if the topic was deleted and created again, or if
    another writer has added an entry with this number.
    """
    partitions = [_archived(each, written.found.get(each.partition)) for each in ranges]
    made = entry(
        job,
        number,
        check_same_id(job.cluster, job.topic),
        partitions=partitions,
        files=written.files,
        lost=lost,
        schema=job.columns.ddl if job.columns else None,
        mismatched=sum(each.mismatched for each in written.found.values()),
    )
    job.folder.commit(made)
    return made


def fence(job: Run, number: int) -> None:
    """Commit an empty ledger entry, so that no interrupted run can commit an entry with the same number."""
    job.folder.commit(entry(job, number, job.topic, partitions=[], files=[]))


def entry(
    job: Run,
    number: int,
    now: Topic,
    *,
    partitions: list[ArchivedRange],
    files: list[DataFile],
    lost: list[LostRange] | None = None,
    schema: str | None = None,
    mismatched: int = 0,
) -> Entry:
    """Return a new entry for the ledger of the archive.

    `now` is the topic as it is at the commit; it may have more partitions than at the beginning of the run.
    """
    return Entry(
        number=number,
        topic=job.topic.name,
        topic_id=job.topic.topic_id,
        committed_at_ms=int(job.clock() * 1000),
        partitions=partitions,
        files=files,
        lost=lost or [],
        schema=schema,
        mismatched=mismatched,
        topic_partitions=len(now.partitions),
        topic_config=job.cluster.own_config(job.topic.name),
    )


def _archived(wanted: OffsetRange, found: Counted | None) -> ArchivedRange:
    """Return the archived range with the number of its records.

    Raises JobFailed if the files have records outside the range, or more records than the range has offsets.
    """
    if found and (found.records > wanted.offsets or found.first < wanted.start or found.last >= wanted.end):
        raise JobFailed(
            f"{wanted}: the files hold {found.records} records with offsets {found.first} to {found.last}, which "
            "do not fit this range"
        )
    records = found.records if found else 0
    return ArchivedRange(partition=wanted.partition, start=wanted.start, end=wanted.end, records=records)
