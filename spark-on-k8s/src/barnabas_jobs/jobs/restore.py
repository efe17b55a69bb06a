"""`restore`: write archived records into a topic, each to its partition, with its timestamp and headers, exactly once.

A restore stores a plan: the selected records, and the end offset of each target partition before the first record is
written. A run that continues the restore compares the plan with the present end offsets, and writes the remaining
records.
"""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, ClassVar, Final

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.files.restore_notes import RestoreNotes
from barnabas_jobs.jobs.location import archive_at, store_at
from barnabas_jobs.kafka.new_topic import settings_of_new_topic
from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.kafka.writer import QUIET_S, TopicWriter, quiet_ends
from barnabas_jobs.planning.ending import JobResult
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.ledger import Generation, Ledger
from barnabas_jobs.planning.options import (
    Bootstrap,
    JobOptions,
    Location,
    Rule,
    Time,
    TopicName,
    range_rule,
    since_1970_ms,
)
from barnabas_jobs.planning.restore_plan import (
    Plan,
    Selected,
    Selection,
    TargetTopic,
    check_same,
    check_selected,
    check_target,
    check_written,
    is_complete,
)
from barnabas_jobs.spark.failures import StageLost, spark_failures
from barnabas_jobs.spark.partition_tasks import check_one_task_each, write_by_partition
from barnabas_jobs.spark.phases import phase
from barnabas_jobs.spark.records import in_ranges, of_files, size

STARTS_MAX: Final = 4

Offset = Annotated[int, msgspec.Meta(ge=0)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=32767, description="a whole number from 1 to 32767")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,50}$", description="1 to 50 characters of a-z, 0-9 and '-'")]


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `restore`.

    `from_*` (inclusive) and `to_*` (exclusive) bound times and offsets. `create` creates the target with the archived
    config, and with `replicas` replicas of each partition, by default as many as the brokers choose. `append` allows a
    target that is not empty. `name` names the restore, so that a run continues the earlier run of the same name.
    `state` is the folder of the plan, by default in the archive.
    """

    RULES: ClassVar = (
        Rule(
            kind="needs",
            option="replicas",
            other="create",
            allowed="replicas together with create=true, which creates the topic",
        ),
        range_rule("time"),
        range_rule("offset"),
    )

    bootstrap: Bootstrap
    topic: TopicName
    archive: Location
    into: TopicName | None = None
    topic_id: str | None = None
    from_time: Time | None = None
    to_time: Time | None = None
    from_offset: Offset | None = None
    to_offset: Offset | None = None
    partitions: list[Offset] | None = None
    create: bool = False
    replicas: Replicas | None = None
    append: bool = False
    dry_run: bool = False
    name: Name = "restore"
    state: Location | None = None


class Result(JobResult, frozen=True, kw_only=True):
    """The selected records, and the numbers of written records by partition.

    `written` counts what this run wrote, and `already_there` what earlier runs or tasks wrote.
    """

    into: str
    dry_run: bool
    selected: list[Selected]
    bases: dict[int, int]
    written: dict[int, int]
    already_there: dict[int, int]


def run(
    spark: SparkSession, options: Options, clock: Callable[[], float] = time.time, quiet_s: float = QUIET_S
) -> Result:
    """Start or continue a restore. Raises JobFailed on failure; records that were written stay.

    If the target gets no new record for `quiet_s` seconds, the tasks of earlier runs are taken to have ended.
    """
    check_one_task_each(spark)
    folder = archive_at(spark, options.archive)
    ledger, _ = folder.survey()
    generation = ledger.chosen(options.topic_id)
    if generation.topic != options.topic:
        raise Refused(f"archive={options.archive} is of the topic {generation.topic!r}, not of {options.topic!r}")
    cluster = Cluster(options.bootstrap)
    name = options.into or options.topic
    selection = _selection(options, generation.topic_id)
    selected = None
    notes = _notes(spark, options)
    if not options.dry_run:
        notes.check_writable()
    if options.dry_run or not cluster.has(name):
        selected = _selected(spark, folder, generation, selection)
        _check(cluster, name, generation, selected, options, clock)
        if options.dry_run:
            return Result(into=name, dry_run=True, selected=selected, bases={}, written={}, already_there={})
        cluster.create_topic(name, generation.topic_partitions, generation.topic_config, options.replicas)
    target = cluster.topic(name)
    with notes.restored_by_us(target.topic_id):
        into = _Target(cluster, target, selection, clock, quiet_s)
        return _restore(spark, options, folder, ledger, notes, into, selected)


def _notes(spark: SparkSession, options: Options) -> RestoreNotes:
    if options.state is None:
        return RestoreNotes(store_at(spark, options.archive), in_archive=True)
    return RestoreNotes(store_at(spark, options.state, "state"), in_archive=False)


class _Target:
    """The topic into which a restore writes."""

    def __init__(
        self, cluster: Cluster, topic: Topic, selection: Selection, clock: Callable[[], float], quiet_s: float
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.selection = selection
        self.clock = clock
        self.quiet_s = quiet_s
        self._written = 0

    def ends(self) -> dict[int, int]:
        """Return the end offset of each partition, behind open transactions, too."""
        return self.cluster.log_ends(self.topic)

    def check_no_open_transaction(self) -> None:
        """Raise Refused if a transaction is open in the topic: nobody could read what is restored behind it."""
        stable, ends = self.cluster.bounds(self.topic), self.ends()
        held = [
            f"{number} (from offset {stable[number].latest})" for number in ends if stable[number].latest < ends[number]
        ]
        if held:
            raise Refused(
                f"into={self.topic.name}: transactions are open in the partitions {', '.join(held)}; wait until their "
                "producers have ended them, or end them with `barnabas abort-transaction`, and run the restore again"
            )

    def written(self, plan: Plan) -> int:
        """Return the number of planned records that the target has; the last known number if no broker answers."""
        with suppress(JobFailed):
            ends = self.ends()
            self._written = sum(ends[partition] - plan.bases[partition] for partition in plan.records)
        return self._written

    def await_quiet(self, plan: Plan) -> None:
        """Wait until tasks of interrupted runs no longer write. Return at once if all records are written already."""
        if not is_complete(plan, self.ends()):
            quiet_ends(self.topic.name, self.ends, self.quiet_s)


def _begun(notes: RestoreNotes, name: str, into_id: str) -> Plan | None:
    """Return the plan that an earlier run has stored, or None. Raises JobFailed if the plan cannot be read."""
    kept = notes.plan(name, into_id)
    try:
        return None if kept is None else msgspec.json.decode(kept, type=Plan)
    except msgspec.DecodeError as error:
        raise JobFailed(
            f"the plan of the restore name={name} cannot be read: {error}; empty the target and restore under another "
            "name"
        ) from error


def _restore(
    spark: SparkSession,
    options: Options,
    folder: ArchiveFolder,
    ledger: Ledger,
    notes: RestoreNotes,
    target: _Target,
    selected: list[Selected] | None,
) -> Result:
    """Start the restore into the target, or continue it if an earlier run has stored a plan.

    `selected` describes the records that this run chose from the archive before it created the target, or is None if
    the target existed already.
    """
    plan = _begun(notes, options.name, target.topic.topic_id)
    if plan is not None:
        check_same(plan, target.selection, options.name)
        target.await_quiet(plan)
        ledger = ledger.first(plan.entries)
    generation = ledger.chosen(target.selection.topic_id)
    if plan is not None or selected is None:
        selected = _selected(spark, folder, generation, target.selection)
    _check(target.cluster, target.topic.name, generation, selected, options, target.clock)
    target.check_no_open_transaction()
    if plan is not None:
        check_selected(plan, selected)
    else:
        plan = _plan(options, target, len(ledger.entries), selected)
        notes.keep_plan(options.name, plan.into_id, msgspec.json.encode(plan))
    counts = _write(_records(spark, folder, generation, target.selection), options.bootstrap, plan, target)
    check_written(plan, target.ends())
    written, there = ({row["partition"]: row[which] for row in counts} for which in ("written", "there"))
    return Result(
        into=plan.into, dry_run=False, selected=selected, bases=plan.bases, written=written, already_there=there
    )


def _plan(options: Options, target: _Target, entries: int, selected: list[Selected]) -> Plan:
    """Return a new plan of the restore. Raises Refused if the target topic ever had records and `append` is false."""
    ends = target.ends()
    if any(ends.values()) and not options.append:
        raise Refused(
            f"into={target.topic.name} is not a new topic: {sum(ends.values())} offsets were already written, "
            "even if the records have been deleted since. Restore into a new topic, or set append=true to add the "
            "restored records at the end"
        )
    return Plan(
        into=target.topic.name,
        into_id=target.topic.topic_id,
        selection=target.selection,
        entries=entries,
        bases=ends,
        records={each.partition: each.records for each in selected},
    )


def _write(records: DataFrame, bootstrap: str, plan: Plan, target: _Target) -> list[Row]:
    """Write the records in a Spark job.

    If an executor is lost together with its shuffle data, wait until all tasks have ended, and write the remaining
    records in a new Spark job. Raises JobFailed after STARTS_MAX Spark jobs.
    """
    for start in range(1, STARTS_MAX + 1):
        try:
            writer = TopicWriter(bootstrap, plan.into, plan.bases, plan.records, target.ends(), target.quiet_s)
            written = partial(target.written, plan)
            in_phase = phase(records.sparkSession, "restoring", sum(plan.records.values()), written)
            with spark_failures(f"restoring into {plan.into}"), in_phase:
                return write_by_partition(records, plan.records, writer)
        except StageLost as failure:
            if start == STARTS_MAX:
                raise
            print(f"barnabas jobs: {failure}; new tasks will write the remaining records", file=sys.stderr)
            target.await_quiet(plan)
    raise AssertionError("cannot happen: the last Spark job either returned or raised")


def _check(
    cluster: Cluster,
    name: str,
    generation: Generation,
    selected: list[Selected],
    options: Options,
    clock: Callable[[], float],
) -> None:
    """Raise Refused if the brokers would reject, change or delete some of the records in the target topic.

    If the topic does not exist, check the configs with which `create=true` would create it. Without `create=true`,
    raise Refused.
    """
    now_ms = int(clock() * 1000)
    if cluster.has(name):
        target = TargetTopic(name, len(cluster.topic(name).partitions), cluster.settings(name))
    elif options.create:
        settings = settings_of_new_topic(
            cluster.bootstrap, name, generation.topic_partitions, generation.topic_config, options.replicas
        )
        target = TargetTopic(name, generation.topic_partitions, settings, is_new=True)
    else:
        raise Refused(
            f"into={name}: the cluster at {cluster.bootstrap} has no such topic; create=true creates the topic with "
            f"{generation.topic_partitions} partitions and the archived config"
        )
    check_target(target, selected, now_ms)


def _selection(options: Options, topic_id: str) -> Selection:
    from_ms, to_ms = (None if each is None else since_1970_ms(each) for each in (options.from_time, options.to_time))
    return Selection(
        topic_id=topic_id,
        from_ms=from_ms,
        to_ms=to_ms,
        from_offset=options.from_offset,
        to_offset=options.to_offset,
        partitions=options.partitions,
    )


def _records(spark: SparkSession, folder: ArchiveFolder, generation: Generation, selection: Selection) -> DataFrame:
    """Return the selected records, with their timestamp in the column `timestamp_ms`."""
    archived = of_files(spark, folder.data, folder.paths(generation))
    # `compact` may have joined files of `generation` with newer files, so the joined files also hold newer records.
    if generation.later:
        archived = in_ranges(archived, generation.spans())
    records = archived.withColumn("timestamp_ms", F.unix_millis("timestamp"))
    conditions = (
        (selection.from_ms, F.col("timestamp_ms") >= F.lit(selection.from_ms)),
        (selection.to_ms, F.col("timestamp_ms") < F.lit(selection.to_ms)),
        (selection.from_offset, F.col("offset") >= F.lit(selection.from_offset)),
        (selection.to_offset, F.col("offset") < F.lit(selection.to_offset)),
        (selection.partitions, F.col("partition").isin(selection.partitions or [])),
    )
    for bound, condition in conditions:
        if bound is not None:
            records = records.where(condition)
    return records


def _selected(
    spark: SparkSession, folder: ArchiveFolder, generation: Generation, selection: Selection
) -> list[Selected]:
    columns = (
        F.count("*").alias("records"),
        F.sum(size()).alias("bytes"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("timestamp_ms").alias("oldest_ms"),
        F.max("timestamp_ms").alias("newest_ms"),
        F.count(F.when(F.col("timestamp_ms") <= 0, 1)).alias("unsettable"),
        F.count(F.when(F.col("key").isNull(), 1)).alias("keyless"),
    )
    # Progress counts written records, and this phase writes none, so the progress is 0.
    in_phase = phase(spark, "checking", generation.records, lambda: 0)
    with spark_failures(f"reading the archive {folder}"), in_phase:
        rows = _records(spark, folder, generation, selection).groupBy("partition").agg(*columns).collect()
    return sorted((Selected(**row.asDict()) for row in rows), key=lambda each: each.partition)
