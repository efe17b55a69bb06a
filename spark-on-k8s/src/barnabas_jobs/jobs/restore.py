"""`restore`: records of an archive into a topic, each to its partition, in order, with timestamp and headers, once.

A restore has a plan, kept in the archive: which records, and where each partition of the target ends before the first
of them. A run that goes on with it finds how far it had come by where the target ends now.
"""

import time
from collections.abc import Callable
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As everybody who writes Spark calls it.

from barnabas_jobs.files.archive_folder import ArchiveFolder
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.kafka.new_topic import settings_of_new_topic
from barnabas_jobs.kafka.quiet import quiet_ends
from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.kafka.writer import TopicWriter
from barnabas_jobs.planning.errors import BadOption, JobFailed
from barnabas_jobs.planning.ledger import Generation, Ledger
from barnabas_jobs.planning.options import (
    Bootstrap,
    JobOptions,
    Location,
    Time,
    TopicName,
    check_range,
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
)
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.partition_tasks import write_by_partition
from barnabas_jobs.spark.phases import phase
from barnabas_jobs.spark.records import of_files, size

Offset = Annotated[int, msgspec.Meta(ge=0)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=32767, description="a whole number, 1 to 32767")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,50}$", description="1 to 50 of a-z, 0-9 and '-'")]


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `restore` takes.

    From (inclusive) and to (exclusive) bound times and offsets. `create` makes the target as the topic was, with
    `replicas` of each partition, or as many as the brokers give. `append` allows a target that has had records. `name`
    tells restores into one topic from each other: the same goes on.
    """

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

    def __post_init__(self) -> None:
        """Also of options that contradict each other."""
        super().__post_init__()
        if self.replicas is not None and not self.create:
            raise BadOption(
                f"replicas={self.replicas} and create=false: replicas are for a topic that create=true makes"
            )
        check_range("time", self.from_time, self.to_time)
        check_range("offset", self.from_offset, self.to_offset)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen, and what this run wrote of it; `already_there` was written by a run before."""

    into: str
    dry_run: bool
    selected: list[Selected]
    bases: dict[int, int]
    written: dict[int, int]
    already_there: dict[int, int]

    @property
    def fine(self) -> bool:
        """A run that ends is fine."""
        return True


def run(spark: SparkSession, options: Options, clock: Callable[[], float] = time.time) -> Result:
    """Restores, or goes on with a restore. Raises JobFailed; what was written by then counts."""
    _check_one_task_each(spark)
    folder = archive_at(spark, options.archive)
    ledger, _ = folder.survey()
    generation = ledger.chosen(options.topic_id)
    if generation.topic != options.topic:
        raise JobFailed(f"archive={options.archive} is of the topic {generation.topic!r}, not of {options.topic!r}")
    cluster = Cluster(options.bootstrap)
    name = options.into or options.topic
    selection = _selection(options, generation.topic_id)
    selected = None
    if options.dry_run or not cluster.has(name):
        selected = _selected(spark, folder, generation, selection)
        _check(cluster, name, generation, selected, options, clock)
        if options.dry_run:
            return Result(into=name, dry_run=True, selected=selected, bases={}, written={}, already_there={})
        cluster.create_topic(name, generation.topic_partitions, generation.topic_config, options.replicas)
    target = cluster.topic(name)
    with folder.restored_by_us(target.topic_id):
        return _restore(spark, options, folder, ledger, _Target(cluster, target, selection, clock), selected)


def _check_one_task_each(spark: SparkSession) -> None:
    """Two tasks of one partition would write its records twice. Raises JobFailed."""
    if spark.sparkContext.getConf().get("spark.speculation", "false") == "true":
        raise JobFailed(
            "spark.speculation=true begins a second task beside one that is slow, and both would write the same "
            "records; restore with spark.speculation=false"
        )


class _Target:
    """Where a restore writes."""

    def __init__(self, cluster: Cluster, topic: Topic, selection: Selection, clock: Callable[[], float]) -> None:
        self.cluster = cluster
        self.topic = topic
        self.selection = selection
        self.clock = clock

    def ends(self) -> dict[int, int]:
        """By partition, the offset after the last record."""
        return {partition: bounds.latest for partition, bounds in self.cluster.bounds(self.topic).items()}


def _begun(folder: ArchiveFolder, name: str, into_id: str) -> Plan | None:
    """The plan of a run before."""
    kept = folder.restore_plan(name, into_id)
    try:
        return None if kept is None else msgspec.json.decode(kept, type=Plan)
    except msgspec.DecodeError as error:
        raise JobFailed(
            f"archive={folder}: the plan of the restore name={name} cannot be read: {error}; empty the target and "
            "restore under another name"
        ) from error


def _restore(
    spark: SparkSession,
    options: Options,
    folder: ArchiveFolder,
    ledger: Ledger,
    target: _Target,
    selected: list[Selected] | None,
) -> Result:
    """`selected`: what was found before the target was made, which then has no plan yet."""
    plan = _begun(folder, options.name, target.topic.topic_id)
    if plan is not None:
        check_same(plan, target.selection, options.name)
        quiet_ends(target.topic.name, target.ends)
        ledger = Ledger(ledger.entries[: plan.entries])
    generation = ledger.chosen(target.selection.topic_id)
    if plan is not None or selected is None:
        selected = _selected(spark, folder, generation, target.selection)
    _check(target.cluster, target.topic.name, generation, selected, options, target.clock)
    if plan is not None:
        check_selected(plan, selected)
    else:
        plan = _plan(options, target, len(ledger.entries), selected)
        folder.keep_restore_plan(options.name, plan.into_id, msgspec.json.encode(plan))
    records = _records(spark, folder, generation, target.selection)
    counts = _write(records, TopicWriter(options.bootstrap, plan.into, plan.bases, plan.records))
    check_written(plan, target.ends())
    written, there = ({row["partition"]: row[which] for row in counts} for which in ("written", "there"))
    return Result(
        into=plan.into, dry_run=False, selected=selected, bases=plan.bases, written=written, already_there=there
    )


def _plan(options: Options, target: _Target, entries: int, selected: list[Selected]) -> Plan:
    """A new one. Raises JobFailed where the target has had records and that was not allowed."""
    ends = target.ends()
    if any(ends.values()) and not options.append:
        raise JobFailed(
            f"into={target.topic.name} has had {sum(ends.values())} records: with append=true the restored ones come "
            "after them; or restore into an empty topic"
        )
    return Plan(
        into=target.topic.name,
        into_id=target.topic.topic_id,
        selection=target.selection,
        entries=entries,
        bases=ends,
        records={each.partition: each.records for each in selected},
    )


def _write(records: DataFrame, writer: TopicWriter) -> list[Row]:
    in_phase = phase(records.sparkSession, "restoring", sum(writer.records.values()))
    with spark_failures(f"restoring into {writer.topic}"), in_phase:
        return write_by_partition(records, writer.records, writer)


def _check(
    cluster: Cluster,
    name: str,
    generation: Generation,
    selected: list[Selected],
    options: Options,
    clock: Callable[[], float],
) -> None:
    """Of the target as it is, or as it would be made."""
    now_ms = int(clock() * 1000)
    if cluster.has(name):
        target = TargetTopic(name, len(cluster.topic(name).partitions), cluster.settings(name))
    elif options.create:
        settings = settings_of_new_topic(
            cluster.bootstrap, name, generation.topic_partitions, generation.topic_config, options.replicas
        )
        target = TargetTopic(name, generation.topic_partitions, settings, is_new=True)
    else:
        raise JobFailed(
            f"into={name}: the cluster at {cluster.bootstrap} has no such topic; create=true makes it with "
            f"{generation.topic_partitions} partitions and the config that it had"
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
    """The selected records; `timestamp_ms` is their time."""
    archived = of_files(spark, folder.data, folder.paths(generation))
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
    )
    with spark_failures(f"reading the archive {folder}"):
        rows = _records(spark, folder, generation, selection).groupBy("partition").agg(*columns).collect()
    return sorted((Selected(**row.asDict()) for row in rows), key=lambda each: each.partition)
