"""`archive`: copy the new records of a topic to Parquet, exactly once.

A commit reads the missing ranges of offsets, writes their records to a new folder, syncs and counts them, checks that
the topic is still the same, and adds one ledger entry. Files that an interrupted run leaves are in no entry, so they
do not count. The next run removes them and reads the same ranges again.
"""

import threading
import time
from collections.abc import Callable
from typing import Annotated, ClassVar

import msgspec
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import verify
from barnabas_jobs.jobs.archive_commit import Run, commit, fence, write
from barnabas_jobs.jobs.archive_standing import ArchiveStanding
from barnabas_jobs.jobs.archive_stream import SignalName, Stream, until_signal
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.kafka.topics import Cluster, check_same_id
from barnabas_jobs.planning.committed import Committed
from barnabas_jobs.planning.ending import JobResult
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.ledger import LostRange, check_topic
from barnabas_jobs.planning.options import Bootstrap, Count, JobOptions, Location, Rule, TopicName
from barnabas_jobs.planning.ranges import Bounds, check_log_holds, first_of, gone, pending
from barnabas_jobs.spark.json_columns import JsonColumns, Mismatch, read_schema
from barnabas_jobs.spark.records import of_topic, reading
from barnabas_jobs.spark.standing import reported


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `archive`.

    `commit_records` is the maximum number of records in a commit. After an interruption, at most this many records must
    be read again.
    """

    RULES: ClassVar = (
        Rule(
            kind="excludes",
            option="delete_archived",
            other="continuous",
            allowed="true for only one of these options; to delete archived records, run the job again with "
            "continuous=false",
        ),
    )

    bootstrap: Bootstrap
    topic: TopicName
    archive: Location
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
    """The result of a run: the records and bytes that the run added, and all archived records of this topic id.

    `left_out` counts offsets without a committed record, such as those of aborted transactions. `ended_by` is the
    signal that ended a continuous run.
    """

    topic: str
    topic_id: str
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
    job = Run(spark, cluster, archive_at(spark, options.archive), topic, columns, clock)
    ended_by: SignalName | None = None
    with job.folder.written_by_us(), reading(spark, options.topic):
        committed, swept_runs = _begun(job, options)
        progress = ArchiveStanding(job, committed)
        with reported(progress.now):
            _commits(job, options, committed)
            if options.continuous:
                with until_signal(stopping) as ending:
                    Stream(job, ending.event, committed, progress).run(options.trigger_seconds, options.commit_records)
                ended_by = ending.ended_by
        deleted_before = _delete_archived(job) if options.delete_archived else {}
    return Result(
        topic=topic.name,
        topic_id=topic.topic_id,
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


def _begun(job: Run, options: Options) -> tuple[Committed, int]:
    """Remove the files that interrupted runs left; return the end of the archive, and the number of these runs.

    If an interrupted run might still commit an entry, first commit an empty entry with the same number, so that the
    commit of the interrupted run fails.
    """
    ledger, left = job.folder.survey_sums()
    check_topic(ledger, options.topic, options.archive)
    number, topic_id = ledger.count, job.topic.topic_id
    if left.fence:
        fence(job, number)
        number += 1
    job.folder.sweep(left.runs, number)
    committed = Committed(number, ledger.ends(topic_id), ledger.records(topic_id), ledger.last_commit_ms)
    return committed, len(left.runs)


def _commits(job: Run, options: Options, committed: Committed) -> None:
    ends, log = committed.ends, job.cluster.bounds(job.topic)
    check_log_holds(job.topic.name, ends, log)
    lost = _lost(job.topic.name, options, ends, log)
    offsets = sum(each.offsets for each in pending(ends, log))
    while (ranges := first_of(pending(ends, log), options.commit_records)) or lost:
        wanted = [each for each in ranges if each.offsets > 0]
        records = of_topic(job.spark, options.bootstrap, options.topic, wanted)
        written = write(job, committed.number, records, offsets)
        committed.add(commit(job, committed.number, written, ranges, lost))
        lost = []


def _lost(topic: str, options: Options, ends: dict[int, int], log: dict[int, Bounds]) -> list[LostRange]:
    """Return the ranges that the topic deleted before they were archived, and move `ends` past these ranges.

    Raises Refused if there are such ranges and `fail_on_data_loss` is true.
    """
    ranges = gone(ends, log)
    if ranges and options.fail_on_data_loss:
        raise Refused(
            f"{topic}: {', '.join(map(str, ranges))} was deleted from the topic before it was archived; "
            "with fail_on_data_loss=false the archive continues after the gap, and the ledger records the gap"
        )
    ends.update({each.partition: each.end for each in ranges})
    return [LostRange(*each) for each in ranges]


def _delete_archived(job: Run) -> dict[int, int]:
    """Delete the archived records from the topic, and return the offsets before which they were deleted, by partition.

    Raises JobFailed if topic and archive differ.
    """
    generation = job.folder.ledger().generation(job.topic.name, job.topic.topic_id)
    compared = verify.compare(
        job.spark,
        job.folder,
        generation,
        verify.Live(job.cluster, job.topic, job.cluster.bounds(job.topic)),
        only_shared=True,  # The topic no longer has the other archived records, so only shared ones are compared.
    )
    if not compared.fine:
        raise JobFailed(
            f"delete_archived: {job.topic.name} and its archive differ, so nothing was deleted: {compared.summary}"
        )
    before = {each.partition: each.end for each in generation.spans()}
    check_same_id(job.cluster, job.topic)
    job.cluster.delete_records(job.topic.name, before)
    return before
