"""`compact`: merge the small files of an archive, such as those that a continuous archive commits every minute.

Each merge is a commit that adds one entry to the archive's ledger. The files of this entry replace the files of the
merged entries. The replaced files stay for a day, because other runs may be reading them, and a later run removes them.
"""

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.planning.compaction import (
    fencing_entry,
    groups_to_join,
    joining_entry,
    records_of,
    replaced_runs,
)
from barnabas_jobs.planning.ending import JobResult
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.ledger import DataFile, Entry, Generation, Ledger, check_topic, sums_of
from barnabas_jobs.planning.options import Count, JobOptions, Location, TopicName
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.phases import phase
from barnabas_jobs.spark.records import PAGE_CHECKSUMS, counts, write_parquet


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `compact`, which joins commits of an archive into new ones of at most `commit_records` records."""

    topic: TopicName
    archive: Location
    commit_records: Count = 5_000_000


class Result(JobResult, frozen=True, kw_only=True):
    """The result: `joined_commits` commits were joined into `commits` new ones.

    `removed_runs` is the number of run folders that were removed, because an earlier run of `compact` had replaced
    their files by joined ones.
    """

    topic: str
    joined_commits: int
    commits: int
    files_before: int
    files_after: int
    removed_runs: int


class Compaction(NamedTuple):
    """The parameters that all commits of a run share."""

    spark: SparkSession
    folder: ArchiveFolder
    clock: Callable[[], float]

    @property
    def now_ms(self) -> int:
        """The present time in ms since 1970."""
        return int(self.clock() * 1000)


def run(spark: SparkSession, options: Options, clock: Callable[[], float] = time.time) -> Result:
    """Join the small files of an archive's commits, and remove the files that were replaced at least a day ago.

    Raises JobFailed on failure; what was committed before the failure stays.
    """
    job = Compaction(spark, archive_at(spark, options.archive), clock)
    with job.folder.written_by_us():
        ledger = _begun(job, options)
        generations = [ledger.generation(options.topic, each) for each in ledger.topic_ids()]
        removed = sum(_remove_replaced(job, each) for each in generations)
        joined, entries = 0, list(ledger.entries)
        for generation in generations:
            for group in groups_to_join(generation, options.commit_records):
                entries.append(_joined(job, len(entries), generation, group))
                joined += len(group)
        job.folder.pack_all(entries)
    after = [Ledger(tuple(entries)).generation(options.topic, each.topic_id) for each in generations]
    return Result(
        topic=options.topic,
        joined_commits=joined,
        commits=len(entries) - len(ledger.entries),
        files_before=sum(len(each.files) for each in generations),
        files_after=sum(len(each.files) for each in after),
        removed_runs=removed,
    )


def _begun(job: Compaction, options: Options) -> Ledger:
    """Remove the files that interrupted runs left in the archive, and return the ledger.

    If an interrupted run might still commit an entry, first commit an empty entry with the same number, so that the
    commit of the interrupted run fails.
    """
    ledger, left = job.folder.survey()
    check_topic(sums_of(ledger.entries), options.topic, options.archive)
    if not ledger.entries:
        raise Refused(f"archive={options.archive} is empty: run `archive` first")
    if left.fence:
        fence = fencing_entry(len(ledger.entries), ledger.entries[-1], job.now_ms)
        job.folder.commit(fence)
        ledger = Ledger((*ledger.entries, fence))
    job.folder.sweep(left.runs, len(ledger.entries))
    return ledger


def _remove_replaced(job: Compaction, generation: Generation) -> int:
    """Remove the run folders whose files were replaced, and return the number of removed folders.

    Raises JobFailed, and removes no folder, if a file of the archive is missing.
    """
    replaced = replaced_runs(generation, job.now_ms) & set(job.folder.runs_of(generation.topic_id))
    if replaced:
        job.folder.paths(generation)
    for run_folder in sorted(replaced):
        job.folder.store.remove(run_folder)
    return len(replaced)


def _joined(job: Compaction, number: int, generation: Generation, group: Sequence[Entry]) -> Entry:
    """Join the data files of a group of ledger entries into new files, and commit a ledger entry with the new files.

    If joining fails, remove the new files and raise JobFailed.
    """
    run_folder = job.folder.new_run(generation.topic_id, number)
    files = [file for entry in group for file in entry.files]
    wanted = records_of(generation, group)
    try:
        found = write_joined(job, files, run_folder, sum(wanted.values()))
        if found != wanted:
            raise JobFailed(
                f"{run_folder}: the joined files have these numbers of records by partition: {found}; the ledger has "
                f"{wanted}. The archive is damaged, or the file system or object store does not yet list all files. "
                "No file was replaced; run `verify` to list the damage."
            )
        entry = joining_entry(number, group, generation.entries[-1], job.folder.synced(run_folder), job.now_ms)
    except JobFailed:
        job.folder.store.remove(run_folder)
        raise
    job.folder.commit(entry)
    return entry


def write_joined(job: Compaction, files: Sequence[DataFile], run_folder: str, records: int) -> dict[int, int]:
    """Write the joined files, read them again, and return their number of records by partition."""
    url = job.folder.store.url
    with spark_failures(f"joining files of {job.folder}"):
        reader = job.spark.read.option("basePath", job.folder.data).option(PAGE_CHECKSUMS, "true")
        old = reader.parquet(*(url(file.path) for file in files)).drop("topic_id", "run")
        joined = old.repartition("date", "partition").drop("date")  # Each day of a partition gets one file.
        with phase(job.spark, "joining", records):
            write_parquet(joined.withColumn("partition", F.col("partition").cast("int")), url(run_folder))
        paths = [url(file.path) for file in job.folder.synced(run_folder)]
        return {partition: each.records for partition, each in counts(job.spark, job.folder.data, paths).items()}
