"""`archive`: what a topic holds beyond the archive, to Parquet, exactly once.

A commit takes the ranges of offsets that are missing, writes their records to files of a new folder, syncs and counts
them, asks whether the topic is still the same, and adds one ledger entry. A run that ends early leaves files that no
entry names: they do not count, and the next run removes them and reads the same ranges again.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from pyspark.sql import SparkSession

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.jobs import verify
from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import ArchivedRange, DataFile, Entry, Generation, Ledger, LostRange, check_topic
from barnabas_jobs.planning.options import Bootstrap, Count, Folder, TopicName
from barnabas_jobs.planning.ranges import Bounds, OffsetRange, check_log_holds, first_of, gone, pending
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.phases import phase
from barnabas_jobs.spark.records import counts, of_files, of_topic, write_parquet


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `archive` takes. `commit_records` bounds what a run that ends early has to read again."""

    bootstrap: Bootstrap
    topic: TopicName
    archive: Folder
    commit_records: Count = 5_000_000
    fail_on_data_loss: bool = True
    delete_archived: Annotated[bool, msgspec.Meta(description="true or false; true deletes records once verified")] = (
        False
    )


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did: records and bytes that it added, and what the archive has of this topic id."""

    topic: str
    topic_id: str
    commits: int
    records: int
    bytes: int
    archived_records: int
    swept_runs: int
    lost: list[LostRange]
    deleted_before: dict[int, int]

    @property
    def fine(self) -> bool:
        """A run that ends is."""
        return True


class Run(NamedTuple):
    """What all commits of a run share."""

    spark: SparkSession
    options: Options
    cluster: Cluster
    folder: ArchiveFolder
    topic: Topic
    clock: Callable[[], float]


def run(spark: SparkSession, options: Options, clock: Callable[[], float] = time.time) -> Result:
    """Archives up to where the topic ends when the run begins. Raises JobFailed; what was committed by then stays."""
    cluster = Cluster(options.bootstrap)
    topic = cluster.topic(options.topic)
    folder = ArchiveFolder(options.archive)
    with folder.written_by_us():
        ledger = folder.ledger()
        check_topic(ledger, options.topic, options.archive)
        swept = folder.sweep(ledger)
        job = Run(spark, options, cluster, folder, topic, clock)
        entries = _commits(job, ledger)
        return _result(job, entries, swept)


def _result(job: Run, entries: list[Entry], swept: int) -> Result:
    generation = job.folder.ledger().generation(job.topic.name, job.topic.topic_id)
    return Result(
        topic=job.topic.name,
        topic_id=job.topic.topic_id,
        commits=len(entries),
        records=sum(entry.records for entry in entries),
        bytes=sum(file.bytes for entry in entries for file in entry.files),
        archived_records=generation.records,
        swept_runs=swept,
        lost=[each for entry in entries for each in entry.lost],
        deleted_before=_delete_archived(job, generation) if job.options.delete_archived else {},
    )


def _commits(job: Run, ledger: Ledger) -> list[Entry]:
    ends = ledger.generation(job.topic.name, job.topic.topic_id).ends()
    log = job.cluster.bounds(job.topic)
    check_log_holds(job.topic.name, ends, log)
    lost = _lost(job, ends, log)
    offsets = sum(each.offsets for each in pending(ends, log))
    number, entries = len(ledger.entries), list[Entry]()
    while ranges := first_of(pending(ends, log), job.options.commit_records):
        entries.append(_commit(job, number + len(entries), ranges, lost, offsets))
        ends.update({each.partition: each.end for each in ranges})
        lost = []
    return entries


def _lost(job: Run, ends: dict[int, int], log: dict[int, Bounds]) -> list[LostRange]:
    """What the topic deleted before it was archived. Raises JobFailed unless that was allowed."""
    ranges = gone(ends, log)
    if ranges and job.options.fail_on_data_loss:
        raise JobFailed(
            f"{job.topic.name}: {', '.join(map(str, ranges))} was deleted from the topic before it was archived; "
            "with fail_on_data_loss=false the archive goes on after it, and its ledger says so"
        )
    ends.update({each.partition: each.end for each in ranges})
    return [LostRange(*each) for each in ranges]


def _commit(job: Run, number: int, ranges: list[OffsetRange], lost: list[LostRange], offsets: int) -> Entry:
    """`offsets` are those of the whole run."""
    run_folder = job.folder.new_run(job.topic.topic_id, number)
    with spark_failures(f"archiving {', '.join(map(str, ranges))} of {job.topic.name}"):
        with phase(job.spark, "archiving", offsets):
            write_parquet(of_topic(job.spark, job.options.bootstrap, job.topic.name, ranges), run_folder)
        files = _settled(job, run_folder)
        partitions = _counted(job, ranges, files)
    _check_same_topic(job)
    entry = Entry(
        number=number,
        topic=job.topic.name,
        topic_id=job.topic.topic_id,
        committed_at_ms=int(job.clock() * 1000),
        partitions=partitions,
        files=files,
        lost=lost,
        topic_partitions=len(job.topic.partitions),
        topic_config=job.cluster.own_config(job.topic.name),
    )
    job.folder.commit(entry)
    return entry


def _settled(job: Run, run_folder: Path) -> list[DataFile]:
    try:
        return job.folder.settled(run_folder)
    except OSError as error:
        raise JobFailed(f"archive={job.folder.path}: the data files of this run are not safe: {error}") from error


def _counted(job: Run, ranges: list[OffsetRange], files: list[DataFile]) -> list[ArchivedRange]:
    """What the files hold. Raises JobFailed where that is not within the ranges, or more than they can hold."""
    paths = [str(job.folder.path / file.path) for file in files]
    found = counts(of_files(job.spark, job.folder.data, paths))
    for each in ranges:
        records, first, last = found.get(each.partition, (0, each.start, each.start))
        if records > each.offsets or first < each.start or last >= each.end:
            raise JobFailed(
                f"{each}: the files hold {records} records, offsets {first} to {last}: that is not what was asked for"
            )
    return [
        ArchivedRange(
            partition=each.partition, start=each.start, end=each.end, records=found.get(each.partition, (0,))[0]
        )
        for each in ranges
    ]


def _check_same_topic(job: Run) -> None:
    """Raises JobFailed where the topic was deleted and made again while it was read."""
    now = job.cluster.topic(job.topic.name).topic_id
    if now != job.topic.topic_id:
        raise JobFailed(
            f"topic={job.topic.name} was deleted and made again while it was read (its id was {job.topic.topic_id}, "
            f"and is {now}): nothing of this commit counts; run the job again"
        )


def _delete_archived(job: Run, generation: Generation) -> dict[int, int]:
    """Deletes from the topic what the archive has, where both are equal. Raises JobFailed where they are not."""
    compared = verify.compare(
        job.spark, job.folder, generation, verify.Live(job.cluster, job.topic, job.cluster.bounds(job.topic))
    )
    if not compared.fine:
        raise JobFailed(
            f"delete_archived: {job.topic.name} and its archive differ, so nothing was deleted: {compared.summary}"
        )
    before = {each.partition: each.end for each in generation.spans()}
    _check_same_topic(job)
    job.cluster.delete_records(job.topic.name, before)
    return before
