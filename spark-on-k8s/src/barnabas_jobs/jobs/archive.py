"""`archive`: copy the new records of a topic to an Iceberg table, exactly once.

A commit reads the missing ranges of offsets, writes their records to a new folder, syncs and counts them, checks that
the topic is still the same, and adds one snapshot to the table. Files that an interrupted run leaves are in no
snapshot, so they do not count. The next run removes them and reads the same ranges again.

The continuous form is a Structured Streaming query, each of whose batches is one commit. A query starts at the offsets
where the table ends, and ignores the checkpoints of earlier queries. So after a stop, the records of
an uncommitted batch are read again, and those of a committed batch are not. A signal ends the query between two
commits.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from signal import Signals, signal
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from barnabas_jobs.files.archive_tables import columns_of
from barnabas_jobs.files.store import Store
from barnabas_jobs.files.table_writer import TableWriter, begin
from barnabas_jobs.jobs import verify
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.kafka.groups import Groups, LastRecord, last_records
from barnabas_jobs.kafka.schema_registry import SchemaRegistry
from barnabas_jobs.kafka.topics import Cluster, Topic, check_same_id
from barnabas_jobs.planning.archived import (
    Bounds,
    Commit,
    Committed,
    Identity,
    LostRange,
    OffsetRange,
    PartitionRange,
    check_log_holds,
    check_tails,
    first_of,
    gone,
    offsets_behind,
    pending,
)
from barnabas_jobs.planning.errors import JobFailed, JobFailedLate, Refused
from barnabas_jobs.planning.options import (
    ArchiveOptions,
    Bootstrap,
    Count,
    JobResult,
    MessageType,
    RegistryAddress,
    Rule,
)
from barnabas_jobs.spark.decoded_columns import DecodedColumns, PartName, part_of
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.json_columns import JsonColumns, Mismatch, read_schema
from barnabas_jobs.spark.records import (
    Counted,
    batch_ends,
    counts,
    of_topic,
    reading,
    rejected,
    stream_of_topic,
    with_true_timestamps,
    write_parquet,
)
from barnabas_jobs.spark.status import Standing, phase, reported
from barnabas_registry.schemas import RegistrySettings

REGISTRY_USER: Final = "SCHEMA_REGISTRY_USER_INFO"
"""The environment variable with USER:PASSWORD for the schema registry."""
FILE_OFFSETS: Final = 250_000
"""The number of offsets for which a commit has another file; a file for each partition would be many small ones."""


ColumnsNow = Callable[[], JsonColumns | DecodedColumns | None]


class Run(NamedTuple):
    """The parameters that all commits of a run share; `columns` returns those beside the record, if there are any."""

    spark: SparkSession
    cluster: Cluster
    groups: Groups
    writer: TableWriter
    store: Store
    topic: Topic
    columns: ColumnsNow
    clock: Callable[[], float]


class Written(NamedTuple):
    """The written files with their sizes, which no snapshot names yet, and the counts of their records by partition.

    `columns` are those beside the record, and `rejected` the files with the records that could not be decoded.
    """

    run: str
    files: Mapping[str, int]
    found: Mapping[int, Counted]
    columns: pa.Schema | None
    rejected: Sequence[str]

    @property
    def mismatched(self) -> int:
        """The number of records that do not fit their schema."""
        return sum(each.mismatched for each in self.found.values())


def write(job: Run, records: DataFrame, ranges: list[OffsetRange], offsets: int | None = None) -> Written:
    """Write the records of these ranges to files in a new folder, and count the records in these files.

    `offsets` is the number of offsets that the whole run is to archive, which is needed to report its progress. If
    there are no records, the folder is removed. If writing fails, remove the folder and raise JobFailed.
    """
    columns, run = job.columns(), job.writer.new_run()
    folder = job.writer.folder(run)
    tasks = max(1, -(-sum(each.offsets for each in ranges) // FILE_OFFSETS))
    try:
        with spark_failures(f"archiving {job.topic.name}"):
            true = with_true_timestamps(records.coalesce(tasks))
            with phase(job.spark, "archiving", offsets):
                given = write_parquet(columns.added(true) if columns else true, job.store.url(folder))
            files = _synced(job.store, folder)
            if not files:  # No file was written, because `records` has no record, so the folder is useless.
                job.store.remove(folder)
            found = counts(job.spark, [job.store.url(name) for name in files])
        _check_all_found(folder, given, sum(each.records for each in found.values()))
        written = Written(run, files, found, columns.arrow if columns else None, ())
        return _with_rejected(job, written) if isinstance(columns, DecodedColumns) and written.mismatched else written
    except JobFailed:
        job.store.remove(folder)
        raise


def _with_rejected(job: Run, written: Written) -> Written:
    """Write the records that could not be decoded to files for the table of rejected records."""
    folder, urls = job.writer.rejected_folder(written.run), [job.store.url(name) for name in written.files]
    with spark_failures(f"archiving {job.topic.name}: rejected records"):
        given = write_parquet(rejected(job.spark, urls, job.writer.number), job.store.url(folder))
    files = _synced(job.store, folder)
    if given != written.mismatched or not files:
        raise JobFailed(f"{folder}: {given} records were written, but {written.mismatched} were rejected")
    return written._replace(rejected=tuple(files))


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
        groups=job.groups.all_committed(job.topic.name, now.partitions),
    )
    config = job.cluster.own_config(job.topic.name)
    job.writer.commit(made, list(written.files), len(now.partitions), config, written.columns, written.rejected)
    committed.add(made, sum(written.files.values()), written.mismatched)


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


ASK_S: Final = 5.0


class ArchiveStanding:
    """The lag of this run's archive behind its topic."""

    def __init__(self, job: Run, committed: Committed) -> None:
        self._job = job
        self._committed = committed
        self._asked_s = -ASK_S
        self._behind: int | None = None

    def now(self) -> Standing:
        """Return the time of the archive's last commit, and the archive's lag behind the topic.

        The lag was measured at most ASK_S seconds ago, or earlier if no broker has answered since.
        """
        now_s = self._job.clock()
        if now_s - self._asked_s >= ASK_S:
            self._asked_s = now_s
            with suppress(JobFailed):
                log = self._job.cluster.bounds(self._job.topic)
                self._behind = offsets_behind(self._committed.ends, log)
        return Standing(self._committed.last_commit_ms, self._behind)


POLL_S: Final = 0.2
LATE_S: Final = 3600.0
"""The running time in seconds after which a failure does not count against the backoffLimit of the Kubernetes Job."""
ENDING: Final = (Signals.SIGTERM, Signals.SIGINT)
SignalName = Literal["SIGTERM", "SIGINT"]


class Stream:
    """A streaming query that archives a topic."""

    def __init__(self, job: Run, stopping: threading.Event, committed: Committed) -> None:
        self._committed = committed
        self._job = job
        self._checkpoint = Path()
        self._stopping = stopping
        self._busy = threading.Lock()
        self._failed: Exception | None = None

    def run(self, trigger_seconds: int, records_max: int) -> None:
        """Archive batches until `stopping` is set, and finish the running batch.

        Raises JobFailed on failure, or JobFailedLate if the run fails after it has run for an hour or more.
        """
        began_s = self._job.clock()
        try:
            self._run(trigger_seconds, records_max)
        except JobFailed as failure:
            if self._job.clock() - began_s < LATE_S:
                raise
            raise JobFailedLate(str(failure)) from failure

    def _run(self, trigger_seconds: int, records_max: int) -> None:
        with spark_failures(f"archiving {self._job.topic.name}"), TemporaryDirectory(prefix="archive-") as checkpoint:
            self._checkpoint = Path(checkpoint)
            query = self._begin(trigger_seconds, records_max)
            while query.isActive and not self._stopping.wait(POLL_S):
                pass
            if query.isActive:
                with self._busy:  # A batch holds the lock, so the query stops between two batches.
                    query.stop()
            if self._failed is not None:
                raise self._failed
            query.awaitTermination()

    def _begin(self, trigger_seconds: int, records_max: int) -> StreamingQuery:
        topic = self._job.topic.name
        records = stream_of_topic(self._job.spark, self._job.cluster.bootstrap, topic, self._starts(), records_max)
        writer = records.writeStream.foreachBatch(self._batch).trigger(processingTime=f"{trigger_seconds} seconds")
        return writer.option("checkpointLocation", self._checkpoint.as_uri()).start()

    def _starts(self) -> dict[int, int]:
        """Return by partition the offset at which the query starts.

        This is the offset after the last archived one, or the start of the log if the archive lacks the partition.
        """
        ends, log = self._committed.ends, self._job.cluster.bounds(self._job.topic)
        ends.update({partition: bounds.earliest for partition, bounds in log.items() if partition not in ends})
        return {partition: ends[partition] for partition in log}

    def _batch(self, records: DataFrame, number: int) -> None:
        if self._failed is not None or self._stopping.is_set() or not self._busy.acquire(blocking=False):
            return
        try:
            self._commit(records, number)
        except Exception as error:
            self._failed = error
            raise
        finally:
            self._busy.release()

    def _commit(self, records: DataFrame, number: int) -> None:
        """Commit a batch, which ends where it was read to, as Spark planned before it began.

        So offsets without a record, such as those of transaction markers, are archived, too.
        """
        archived, planned = self._committed.ends, batch_ends(self._checkpoint, number, self._job.topic.name)
        ranges = [OffsetRange(each, archived.get(each, 0), end) for each, end in sorted(planned.items())]
        if any(each.offsets for each in ranges):
            commit(self._job, self._committed, write(self._job, records, ranges), ranges, [])


class Stopping:
    """A request to end the job, which is made by setting `event`.

    `ended_by` is the name of the signal that set the event, or None if another thread set it.
    """

    def __init__(self, event: threading.Event) -> None:
        self.event = event
        self.ended_by: SignalName | None = None

    def stop(self, number: int, _: FrameType | None) -> None:
        """Set the event; keep the name of the signal in `ended_by` if the event was not set yet."""
        if not self.event.is_set():
            self.ended_by = "SIGTERM" if number == Signals.SIGTERM else "SIGINT"
        self.event.set()


@contextmanager
def until_signal(event: threading.Event | None = None) -> Iterator[Stopping]:
    """Set the event on SIGTERM or SIGINT while the block runs, if this is the main thread."""
    stopping = Stopping(event or threading.Event())
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = {number: signal(number, stopping.stop) for number in ENDING}
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal(number, handler)


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
        Rule(kind="excludes", option="schema", other="schema_registry", allowed="only one of these options"),
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
    schema_registry: RegistryAddress | None = None
    registry_truststore: str | None = None
    key_message: MessageType | None = None
    value_message: MessageType | None = None
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
    tables = archive_at(spark, options)
    writer = begin(tables, Identity(topic.name, topic.topic_id, cluster.cluster_id()), clock)
    job = Run(spark, cluster, Groups(options.bootstrap), writer, tables.store, topic, _columns(options, writer), clock)
    ended_by: SignalName | None = None
    with reading(spark, options.topic):
        swept_runs = _recovered(job)
        committed = Committed(writer.head, writer.archived().records)
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


def _columns(options: Options, writer: TableWriter) -> ColumnsNow:
    """Return the function that returns the columns of a commit, for which it asks a schema registry if there is one.

    It is called when the end of the commit's ranges is known, so the registry has the schemas of all its records.
    Raises Refused if the columns of JSON do not go with the table.
    """
    if options.schema_registry is None:
        found = JsonColumns(read_schema(options.schema), options.on_mismatch) if options.schema else None
        if found is not None:
            writer.check_columns(found.arrow)
        return lambda: found
    login = os.environ.get(REGISTRY_USER, "")
    if login and ":" not in login:
        raise Refused(f"{REGISTRY_USER} has no colon; allowed: USER:PASSWORD")
    settings = RegistrySettings(options.schema_registry.rstrip("/"), login, options.registry_truststore or "")
    return partial(_decoded_columns, options, writer, SchemaRegistry(settings))


def _decoded_columns(options: Options, writer: TableWriter, registry: SchemaRegistry) -> DecodedColumns:
    present = {each.name: each.type for each in columns_of(writer.data)}
    parts, subjects = [], []
    messages: Mapping[PartName, str | None] = {"key": options.key_message, "value": options.value_message}
    for name, message in messages.items():
        subject = registry.subject(f"{options.topic}-{name}")
        column = present.get(f"decoded_{name}")
        if subject is not None:
            subjects.append(subject)
            parts.append(part_of(name, subject.name, subject.latest, subject.schemas, message, column))
        elif column is not None:
            raise Refused(f"{registry}: the subject {options.topic}-{name} is gone, whose columns the table has")
    if not subjects:
        raise Refused(f"{registry}: there is no subject {options.topic}-key or {options.topic}-value")
    return DecodedColumns([each for each in parts if each is not None])


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
