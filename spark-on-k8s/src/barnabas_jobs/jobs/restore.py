"""`restore`: write archived records into a topic, each to its partition, with its timestamp and headers, exactly once.

A restore stores a plan: the selected records, and the end offset of each target partition before the first record is
written. A run that continues the restore compares the plan with the present end offsets, and writes the remaining
records. A restore to a point in time then commits the offsets that groups had committed at that time.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_jobs.files.archive_tables import ArchivedTopic
from barnabas_jobs.files.sorted_records import PartitionRecords, RestoreNotes, Wanted
from barnabas_jobs.jobs.location import archive_at, store_at
from barnabas_jobs.kafka.groups import Groups
from barnabas_jobs.kafka.topics import Cluster, Topic, settings_of_new_topic
from barnabas_jobs.kafka.writer import BATCH_BYTES, QUIET_S, TopicWriter, quiet_ends
from barnabas_jobs.planning.archived import OffsetRange
from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.options import (
    CATALOG_OF_BUCKET,
    ArchiveOptions,
    Bootstrap,
    JobResult,
    Location,
    Rule,
    Time,
    TopicName,
    range_rule,
    since_1970_ms,
)
from barnabas_jobs.planning.restore_plan import (
    Outcome,
    Plan,
    RestoredGroup,
    Selected,
    Selection,
    TargetTopic,
    check_same,
    check_selected,
    check_target,
    check_written,
    is_complete,
    left_out,
    offsets_by_partition,
    translated,
)
from barnabas_jobs.spark.failures import Written, check_one_task_each, spark_failures, write_by_partition
from barnabas_jobs.spark.records import batch_size, in_ranges, numbers_before, of_files, size
from barnabas_jobs.spark.status import phase

Offset = Annotated[int, msgspec.Meta(ge=0)]
Replicas = Annotated[int, msgspec.Meta(ge=1, le=32767, description="a whole number from 1 to 32767")]
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9-]{1,50}$", description="1 to 50 characters of a-z, 0-9 and '-'")]


class Options(ArchiveOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `restore`.

    `until` restores what the archive had at that time, and commits the offsets that groups had then committed, unless
    `groups` is false. `from_*` (inclusive) and `to_*` (exclusive) bound times and offsets. `create` creates the target
    with the archived config, and with `replicas` replicas of each partition, by default as many as the brokers choose.
    `append` allows a target that is not empty. `name` names the restore, so that a run continues the earlier run of the
    same name. `state` is the folder of the plan, by default in the archive.
    """

    RULES: ClassVar = (
        CATALOG_OF_BUCKET,
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
    into: TopicName | None = None
    topic_id: str | None = None
    until: Time | None = None
    groups: bool = True
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

    `written` counts what this run wrote, and `already_there` what earlier runs or tasks wrote. `groups` has the groups
    with committed offsets at the time `until`.
    """

    table: str
    into: str
    dry_run: bool
    selected: list[Selected]
    bases: dict[int, int]
    written: dict[int, int]
    already_there: dict[int, int]
    groups: list[RestoredGroup]

    @property
    def fine(self) -> bool:
        """True unless a group has members, so that its offsets could not be committed."""
        return not left_out(self.groups)

    @property
    def summary(self) -> str:
        """The groups whose offsets could not be committed."""
        return left_out(self.groups)


class _Source(NamedTuple):
    """The selected records of an archive, as they were after the commit with the number `commit`.

    `with_groups` says whether the committed offsets of groups are restored, too.
    """

    spark: SparkSession
    archived: ArchivedTopic
    selection: Selection
    commit: int
    with_groups: bool

    def selected(self) -> list[Selected]:
        """Return the number, size and bounds of the selected records, by partition."""
        columns = (
            F.count("*").alias("records"),
            F.sum(size()).alias("bytes"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.min("timestamp_ms").alias("oldest_ms"),
            F.max("timestamp_ms").alias("newest_ms"),
            F.count(F.when(F.col("timestamp_ms") <= 0, 1)).alias("unsettable"),
            F.count(F.when(F.col("key").isNull(), 1)).alias("keyless"),
            F.max(batch_size()).alias("largest_bytes"),
            F.max_by("offset", batch_size()).alias("largest_offset"),
        )
        with self._reading():
            rows = self._records().groupBy("partition").agg(*columns).collect()
        return sorted((Selected(**row.asDict()) for row in rows), key=lambda each: each.partition)

    def readers(self, partitions: Mapping[int, int]) -> dict[int, PartitionRecords]:
        """Return readers of the selected records in the order of offsets, for these partitions."""
        archived, chosen, ends = self.archived, self.selection, self.archived.ends(commit=self.commit)
        files = archived.files()
        found = {}
        for partition in partitions:
            end = ends[partition] if chosen.to_offset is None else min(chosen.to_offset, ends[partition])
            wanted = Wanted(partition, chosen.from_offset or 0, end, chosen.from_ms, chosen.to_ms)
            found[partition] = PartitionRecords(archived.io, files, wanted)
        return found

    def groups(self, plan: Plan) -> dict[str, dict[int, int]]:
        """Return the committed offsets of groups at the time `until`, translated to offsets of the target."""
        if not self.with_groups:
            return {}
        committed = self.archived.group_offsets(commit=self.commit)
        marks = offsets_by_partition(committed, plan)
        with self._reading():
            before = numbers_before(self._records(), marks) if marks else {}
        return translated(committed, plan, before)

    def _records(self) -> DataFrame:
        """Return the selected records, with their timestamp in the column `timestamp_ms`."""
        chosen, ends = self.selection, self.archived.ends(commit=self.commit)
        archived = of_files(self.spark, self.archived.paths())
        # The newest files also hold records that were archived after the commit.
        archived = in_ranges(archived, [OffsetRange(partition, 0, end) for partition, end in ends.items()])
        records = archived.withColumn("timestamp_ms", F.unix_millis("timestamp"))
        conditions = (
            (chosen.from_ms, F.col("timestamp_ms") >= F.lit(chosen.from_ms)),
            (chosen.to_ms, F.col("timestamp_ms") < F.lit(chosen.to_ms)),
            (chosen.from_offset, F.col("offset") >= F.lit(chosen.from_offset)),
            (chosen.to_offset, F.col("offset") < F.lit(chosen.to_offset)),
            (chosen.partitions, F.col("partition").isin(chosen.partitions or [])),
        )
        for bound, condition in conditions:
            if bound is not None:
                records = records.where(condition)
        return records

    @contextmanager
    def _reading(self) -> Iterator[None]:
        # Progress counts written records, and this phase writes none, so the progress is 0.
        in_phase = phase(self.spark, "checking", self.archived.records, lambda: 0)
        with spark_failures(f"reading the table {self.archived.table}"), in_phase:
            yield


def run(
    spark: SparkSession, options: Options, clock: Callable[[], float] = time.time, quiet_s: float = QUIET_S
) -> Result:
    """Start or continue a restore. Raises JobFailed on failure; records that were written stay.

    If the target gets no new record for `quiet_s` seconds, the tasks of earlier runs are taken to have ended.
    """
    check_one_task_each(spark)
    archived = archive_at(spark, options).topic(options.topic, options.topic_id)
    cluster = Cluster(options.bootstrap)
    name = options.into or options.topic
    selection = _selection(options, archived.topic_id)
    with_groups = options.groups and options.until is not None
    source = _Source(spark, archived, selection, archived.commit_number(selection.until_ms), with_groups)
    selected = None
    notes = _notes(spark, options)
    if not options.dry_run:
        notes.check_writable()
    if options.dry_run or not cluster.has(name):
        selected = source.selected()
        _check(cluster, name, archived, selected, options, clock)
        if options.dry_run:
            return _preview(source, cluster, name, selected)
        cluster.create_topic(name, archived.topic_partitions, archived.topic_config, options.replicas)
    target = cluster.topic(name)
    with notes.restored_by_us(target.topic_id):
        return _restore(source, options, notes, _Target(cluster, target, clock, quiet_s), selected)


def _notes(spark: SparkSession, options: Options) -> RestoreNotes:
    if options.state is None:
        return RestoreNotes(store_at(spark, options.archive), in_archive=True)
    return RestoreNotes(store_at(spark, options.state, "state"), in_archive=False)


class _Target:
    """The topic into which a restore writes."""

    def __init__(self, cluster: Cluster, topic: Topic, clock: Callable[[], float], quiet_s: float) -> None:
        self.cluster = cluster
        self.topic = topic
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

    def batch_bytes(self) -> int:
        """Return the largest size of a batch that the topic accepts."""
        return int(self.cluster.config(self.topic.name).get("max.message.bytes", BATCH_BYTES))

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
    source: _Source, options: Options, notes: RestoreNotes, target: _Target, selected: list[Selected] | None
) -> Result:
    """Start the restore into the target, or continue it if an earlier run has stored a plan.

    `selected` describes the records that this run chose from the archive before it created the target, or is None if
    the target existed already.
    """
    plan = _begun(notes, options.name, target.topic.topic_id)
    if plan is not None:
        check_same(plan, source.selection, options.name)
        target.await_quiet(plan)
        source = source._replace(commit=plan.commit)
    if plan is not None or selected is None:
        selected = source.selected()
    _check(target.cluster, target.topic.name, source.archived, selected, options, target.clock)
    target.check_no_open_transaction()
    if plan is not None:
        check_selected(plan, selected)
    else:
        plan = _plan(options, source, target, selected)
        notes.keep_plan(options.name, plan.into_id, msgspec.json.encode(plan))
    groups = source.groups(plan)
    counts = _write(source, options.bootstrap, plan, target)
    check_written(plan, target.ends())
    return Result(
        table=source.archived.table,
        into=plan.into,
        dry_run=False,
        selected=selected,
        bases=plan.bases,
        written={each.partition: each.written for each in counts},
        already_there={each.partition: each.there for each in counts},
        groups=_with_outcomes(Groups(options.bootstrap), plan.into, groups, dry_run=False),
    )


def _plan(options: Options, source: _Source, target: _Target, selected: list[Selected]) -> Plan:
    """Return a new plan of the restore. Raises Refused if the target topic ever had records and `append` is false."""
    ends = target.ends()
    if any(ends.values()) and not options.append:
        raise Refused(
            f"into={target.topic.name} is not a new topic: {sum(ends.values())} offsets were already written, "
            "even if the records have been deleted since. Restore into a new topic, or set append=true to add the "
            "restored records at the end"
        )
    return _plan_into(source, target.topic.name, target.topic.topic_id, ends, selected)


def _plan_into(source: _Source, into: str, into_id: str, bases: dict[int, int], selected: list[Selected]) -> Plan:
    return Plan(
        into=into,
        into_id=into_id,
        selection=source.selection,
        commit=source.commit,
        bases=bases,
        records={each.partition: each.records for each in selected},
    )


def _preview(source: _Source, cluster: Cluster, into: str, selected: list[Selected]) -> Result:
    """Return what a restore would write and commit."""
    exists = cluster.has(into)
    bases = (
        cluster.log_ends(cluster.topic(into)) if exists else dict.fromkeys(range(source.archived.topic_partitions), 0)
    )
    groups = source.groups(_plan_into(source, into, "", bases, selected))
    return Result(
        table=source.archived.table,
        into=into,
        dry_run=True,
        selected=selected,
        bases=bases,
        written={},
        already_there={},
        groups=_with_outcomes(Groups(cluster.bootstrap), into, groups, dry_run=True, exists=exists),
    )


def _with_outcomes(
    groups: Groups, into: str, offsets: Mapping[str, Mapping[int, int]], *, dry_run: bool, exists: bool = True
) -> list[RestoredGroup]:
    """Commit the translated offsets of groups without members, unless `dry_run`, and return what was done.

    An offset that a group has already committed in the target stays: an earlier run has committed it, or the group has
    read on since.
    """
    if not offsets:
        return []
    partitions = {partition for each in offsets.values() for partition in each}
    there = groups.committed(into, partitions, offsets) if exists else {}
    with_members, found = groups.with_members(), list[RestoredGroup]()
    for group, own in sorted(offsets.items()):
        wanted = {partition: offset for partition, offset in own.items() if partition not in there.get(group, {})}
        outcome: Outcome = "planned" if dry_run else "committed"
        if not wanted:
            outcome = "there already"
        elif group in with_members or not (dry_run or groups.commit(group, into, wanted)):
            outcome = "has members"
        found.append(RestoredGroup(group=group, offsets=dict(own), outcome=outcome))
    return found


def _write(source: _Source, bootstrap: str, plan: Plan, target: _Target) -> list[Written]:
    """Write the records in a Spark job, in which each partition has a task."""
    writer = TopicWriter(
        bootstrap, plan.into, plan.bases, plan.records, target.ends(), target.quiet_s, target.batch_bytes()
    )
    written = partial(target.written, plan)
    in_phase = phase(source.spark, "restoring", sum(plan.records.values()), written)
    with spark_failures(f"restoring into {plan.into}"), in_phase:
        return write_by_partition(source.spark, source.readers(plan.records), plan.records, writer)


def _check(
    cluster: Cluster,
    name: str,
    archived: ArchivedTopic,
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
            cluster.bootstrap, name, archived.topic_partitions, archived.topic_config, options.replicas
        )
        target = TargetTopic(name, archived.topic_partitions, settings, is_new=True)
    else:
        raise Refused(
            f"into={name}: the cluster at {cluster.bootstrap} has no such topic; create=true creates the topic with "
            f"{archived.topic_partitions} partitions and the archived config"
        )
    check_target(target, selected, now_ms)


def _selection(options: Options, topic_id: str) -> Selection:
    times = (options.until, options.from_time, options.to_time)
    until_ms, from_ms, to_ms = (None if each is None else since_1970_ms(each) for each in times)
    return Selection(
        topic_id=topic_id,
        until_ms=until_ms,
        from_ms=from_ms,
        to_ms=to_ms,
        from_offset=options.from_offset,
        to_offset=options.to_offset,
        partitions=options.partitions,
    )
