"""`archive`: copy the new records of a topic to an Iceberg table, exactly once.

A commit reads the missing ranges of offsets, writes their records to a new folder, syncs and counts them, checks that
the topic is still the same, and adds one snapshot to the table. Files that an interrupted run leaves are in no
snapshot, so they do not count. The next run removes them and reads the same ranges again.
"""

import threading
import time
from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec
from pyspark.sql import SparkSession

from barnabas_jobs.files.table_writer import begin
from barnabas_jobs.jobs import verify
from barnabas_jobs.jobs.archive_commit import Run, commit, write
from barnabas_jobs.jobs.archive_standing import ArchiveStanding
from barnabas_jobs.jobs.archive_stream import SignalName, Stream, until_signal
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.kafka.last_records import last_records
from barnabas_jobs.kafka.topics import Cluster, check_same_id
from barnabas_jobs.planning.archived import Identity
from barnabas_jobs.planning.committed import Committed, LostRange
from barnabas_jobs.planning.ending import JobResult
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.options import ArchiveOptions, Bootstrap, Count, Rule
from barnabas_jobs.planning.ranges import Bounds, OffsetRange, check_log_holds, check_tails, first_of, gone, pending
from barnabas_jobs.spark.json_columns import JsonColumns, Mismatch, read_schema
from barnabas_jobs.spark.records import of_topic, reading
from barnabas_jobs.spark.standing import reported


class Options(ArchiveOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `archive`.

    `commit_records` is the maximum number of records in a commit. After an interruption, at most this many records must
    be read again.
    """

    RULES: ClassVar = (
        *ArchiveOptions.RULES,
        Rule(
            kind="excludes",
            option="delete_archived",
            other="continuous",
            allowed="true for only one of these options; to delete archived records, run the job again with "
            "continuous=false",
        ),
    )

    bootstrap: Bootstrap
    commit_records: Count = 5_000_000
    fail_on_data_loss: bool = True
    delete_archived: Annotated[
        bool,
        msgspec.Meta(description="true or false; true deletes archived records from the topic after they are verified"),
    ] = False
    schema: str | None = None
    on_mismatch: Mismatch = "fail"
    continuous: bool = False
    trigger_seconds: Count = 60


class Result(JobResult, frozen=True, kw_only=True):
    """The result of a run: the records and bytes that the run added, and all records of the table.

    `table` is the name of the table in the catalog. `left_out` counts offsets without a committed record, such as those
    of aborted transactions. `ended_by` is the signal that ended a continuous run.
    """

    topic: str
    topic_id: str
    table: str
    commits: int
    records: int
    bytes: int
    left_out: int
    archived_records: int
    swept_runs: int
    mismatched: int
    lost: list[LostRange]
    deleted_before: dict[int, int]
    ended_by: SignalName | None = None


def run(
    spark: SparkSession,
    options: Options,
    clock: Callable[[], float] = time.time,
    stopping: threading.Event | None = None,
) -> Result:
    """Archive up to the present end of the topic; a continuous run goes on until a signal, or until `stopping` is set.

    At the end, `delete_archived` compares archive and topic, and deletes the archived records from the topic.

    Raises JobFailed on failure; the commits made before the failure stay.
    """
    cluster = Cluster(options.bootstrap)
    topic = cluster.topic(options.topic)
    columns = JsonColumns(read_schema(options.schema), options.on_mismatch) if options.schema else None
    tables = archive_at(spark, options)
    writer = begin(tables, Identity(topic.name, topic.topic_id, cluster.cluster_id()), clock)
    job = Run(spark, cluster, writer, tables.store, topic, columns, clock)
    ended_by: SignalName | None = None
    with reading(spark, options.topic):
        swept_runs = _recovered(job)
        committed = Committed(writer.head, writer.records)
        with reported(ArchiveStanding(job, committed).now):
            _commits(job, options, committed)
            if options.continuous:
                with until_signal(stopping) as ending:
                    Stream(job, ending.event, committed).run(options.trigger_seconds, options.commit_records)
                ended_by = ending.ended_by
        deleted_before = _delete_archived(job) if options.delete_archived else {}
    return Result(
        topic=topic.name,
        topic_id=topic.topic_id,
        table=writer.archived().table,
        commits=committed.commits,
        records=committed.records,
        bytes=committed.bytes,
        left_out=committed.left_out,
        archived_records=committed.archived_records,
        swept_runs=swept_runs,
        mismatched=committed.mismatched,
        lost=committed.lost,
        deleted_before=deleted_before,
        ended_by=ended_by,
    )


def _recovered(job: Run) -> int:
    """Finish or remove what interrupted runs left, and return the number of removed folders."""
    job.writer.recover_rows()
    config = job.cluster.own_config(job.topic.name)
    return job.writer.remove_left_over(job.writer.run_folders(), len(job.topic.partitions), config)


def _commits(job: Run, options: Options, committed: Committed) -> None:
    ends, log = committed.ends, job.cluster.bounds(job.topic)
    check_log_holds(job.topic.name, ends, log)
    tails = job.writer.head.tails if job.writer.head else {}
    check_tails(job.topic.name, tails, last_records(options.bootstrap, options.topic, ends), log)
    lost = _lost(job.topic.name, options, ends, log)
    offsets = sum(each.offsets for each in pending(ends, log))
    while (ranges := first_of(pending(ends, log), options.commit_records)) or lost:
        wanted = [each for each in ranges if each.offsets > 0]
        records = of_topic(job.spark, options.bootstrap, options.topic, wanted)
        commit(job, committed, write(job, records, ranges, offsets), ranges, lost)
        lost = []


def _lost(topic: str, options: Options, ends: dict[int, int], log: dict[int, Bounds]) -> list[OffsetRange]:
    """Return the ranges that the topic deleted before they were archived, and move `ends` past these ranges.

    Raises Refused if there are such ranges and `fail_on_data_loss` is true.
    """
    ranges = gone(ends, log)
    if ranges and options.fail_on_data_loss:
        raise Refused(
            f"{topic}: {', '.join(map(str, ranges))} was deleted from the topic before it was archived; "
            "with fail_on_data_loss=false the archive continues after the gap, and the table of ranges records the gap"
        )
    ends.update({each.partition: each.end for each in ranges})
    return ranges


def _delete_archived(job: Run) -> dict[int, int]:
    """Delete the archived records from the topic, and return the offsets before which they were deleted, by partition.

    Raises JobFailed if topic and archive differ.
    """
    archived = job.writer.archived()
    compared = verify.compare(
        job.spark,
        archived,
        verify.Live(job.cluster, job.topic, job.cluster.bounds(job.topic)),
        only_shared=True,  # The topic no longer has the other archived records, so only shared ones are compared.
    )
    if not compared.fine:
        raise JobFailed(
            f"delete_archived: {job.topic.name} and its archive differ, so nothing was deleted: {compared.summary}"
        )
    before = {each.partition: each.end for each in archived.spans()}
    check_same_id(job.cluster, job.topic)
    job.cluster.delete_records(job.topic.name, before)
    return before
