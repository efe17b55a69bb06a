"""`lag-history`: report, by hour and day, the lag of groups when they committed, and whether it met the objective."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition
from barnabas_jobs.jobs.location import Report, archive_at, report_at
from barnabas_jobs.kafka.time_lookup import TimeLookup
from barnabas_jobs.kafka.topics import Cluster
from barnabas_jobs.planning.archived import OffsetRange, pending
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.lag import (
    COMMIT,
    DAY,
    HOUR,
    HOURS_DRAWN,
    TOMBSTONE,
    TOPICS_DRAWN,
    Day,
    GroupLag,
    Lag,
    Moment,
    Now,
    Objective,
    OffsetRecord,
    TopicHour,
    decode,
    drawn,
    findings_of,
    groups,
    lag_page,
    lags,
)
from barnabas_jobs.planning.options import (
    CATALOG_OF_BUCKET,
    ArchiveOptions,
    Bootstrap,
    Catalog,
    Count,
    Folder,
    JobOptions,
    JobResult,
    Location,
    Namespace,
    Time,
    TopicName,
    range_rule,
    since_1970_ms,
    summed,
)
from barnabas_jobs.planning.page import about, time_text
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import cached, in_ranges, of_files, of_topic, reading
from barnabas_jobs.spark.status import phase

DECODED: Final = "kind string, group string, topic string, partition int, committed long, commit_ms long"
KEY: Final = ("group", "topic", "partition")
PLACE: Final = ("log_partition", "log_offset")
"""The columns with the partition and offset of a commit's record in `__consumer_offsets`."""
LAG: Final = "log_partition int, log_offset long, lag long, seconds double"
NAMES_MAX: Final = 10
HOUR_MS: Final = 3_600_000
PERIODS_MS: Final = {HOUR: HOUR_MS, DAY: 24 * HOUR_MS}


def decoded(records: DataFrame) -> DataFrame:
    """Return the decoded records of `__consumer_offsets`."""
    fields = F.udf(_decoded, DECODED, useArrow=False)(F.col("key"), F.col("value"))
    place = (F.col("partition").alias("log_partition"), F.col("offset").alias("log_offset"))
    return records.select(*place, fields.alias("said")).select(*PLACE, "said.*")


def _decoded(key: bytes | None, value: bytes | None) -> OffsetRecord:
    return decode(None if key is None else bytes(key), None if value is None else bytes(value))


def kinds(records: DataFrame) -> dict[str, int]:
    """Return the number of records of each kind, such as commits and tombstones."""
    return {row["kind"]: row["count"] for row in records.groupBy("kind").count().orderBy("kind").collect()}


def chosen(records: DataFrame, groups: Sequence[str], topics: Sequence[str]) -> DataFrame:
    """Return the commits and tombstones of these groups and topics, or of all if none are named."""
    found = records.where(F.col("kind").isin(COMMIT, TOMBSTONE))
    for name, wanted in (("group", groups), ("topic", topics)):
        found = found.where(F.col(name).isin(list(wanted))) if wanted else found
    return found


def newest(records: DataFrame) -> list[Row]:
    """Return the last commit of each group and partition, unless a later tombstone has deleted it."""
    order = Window.partitionBy(*KEY).orderBy(F.desc("log_offset"))
    last = records.withColumn("number", F.row_number().over(order)).where("number = 1")
    return last.where(F.col("kind") == COMMIT).orderBy(*KEY).collect()


def every(commits: DataFrame, step: int) -> list[Row]:
    """Return the last commit of each group and partition, and every `step`-th commit before it."""
    order = Window.partitionBy(*KEY).orderBy(F.desc("log_offset"))
    numbered = commits.withColumn("number", F.row_number().over(order) - 1)
    return numbered.where(F.col("number") % step == 0).orderBy(*PLACE).collect()


def with_lags(commits: DataFrame, lags: Sequence[tuple[int, int, int | None, float | None]]) -> DataFrame:
    """Return the commits with the columns `lag` and `seconds`, which are null if unknown."""
    table = F.broadcast(commits.sparkSession.createDataFrame(list(lags), LAG))
    return commits.drop("kind").join(table, list(PLACE), "left")


def with_group_lags(commits: DataFrame) -> DataFrame:
    """Return the commits with two more columns, `group_lag` and `topic_lag`: lags of the group when it committed.

    `group_lag` is the sum of the last known lags of all partitions of the group, and `topic_lag` is the sum for the
    partitions of the committed topic. Both are null if the lag in the committed partition is unknown. Commits are
    ordered by their offsets in `__consumer_offsets`, where all commits of a group are in one partition.
    """
    own = Window.partitionBy(*KEY).orderBy(*PLACE)
    last = F.coalesce(F.last("lag", ignorenulls=True).over(own.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
    change = F.when(F.col("lag").isNotNull(), F.col("lag") - last).otherwise(0)
    found = commits.withColumn("change", change)
    for name, of in (("group_lag", ("group",)), ("topic_lag", ("group", "topic"))):
        so_far = Window.partitionBy(*of).orderBy(*PLACE).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        found = found.withColumn(name, F.when(F.col("lag").isNotNull(), F.sum("change").over(so_far)))
    return found.drop("change")


def roll_ups(history: DataFrame, objective: Objective) -> DataFrame:
    """Return, by group and partition, a row for each hour and a row for each day (UTC) with commits."""
    periods = F.explode(
        F.array(*(_period(name, length_ms) for name, length_ms in PERIODS_MS.items())),
    )
    by_partition = history.withColumn("at", periods).groupBy("at.period", "at.start_ms", *KEY)
    return by_partition.agg(
        F.count("*").alias("commits"),
        F.count("lag").alias("known"),
        F.min("lag").alias("lag_min"),
        F.max("lag").alias("lag_max"),
        F.avg("lag").alias("lag_mean"),
        F.max("group_lag").alias("group_lag_max"),
        F.max("topic_lag").alias("topic_lag_max"),
        F.max("seconds").alias("seconds_max"),
        F.avg("seconds").alias("seconds_mean"),
        F.count(F.when(_missed(objective), 1)).alias("missed"),
    )


def group_days(rolled: DataFrame) -> Mapping[str, list[Day]]:
    """Return the days of each group, in their order, from the rows of its partitions; ignore rows of other periods."""
    sums = (
        F.sum("commits").alias("commits"),
        F.max("group_lag_max").alias("lag_max"),
        F.max("seconds_max").alias("seconds_max"),
        F.sum("missed").alias("missed"),
    )
    rows = rolled.where(F.col("period") == DAY).groupBy("group", "start_ms").agg(*sums).collect()
    found: defaultdict[str, list[Day]] = defaultdict(list)
    for group, start_ms, *figures in sorted(rows):
        found[group].append(Day(time_text(start_ms)[:10], *figures))
    return found


def drawn_hours(rolled: DataFrame, groups: Sequence[str]) -> list[Row]:
    """Return the largest lag of these groups by topic and hour, for the topics and hours that charts show.

    The topic "" stands for all topics together.
    """
    hours = rolled.where((F.col("period") == HOUR) & F.col("group").isin(list(groups)) & F.col("lag_max").isNotNull())
    by_topic = hours.groupBy("group", "topic", "start_ms").agg(F.max("topic_lag_max").alias("lag_max"))
    whole = hours.groupBy("group", "start_ms").agg(F.max("group_lag_max").alias("lag_max"))
    summed = by_topic.unionByName(whole.withColumn("topic", F.lit("")))
    of_topic = Window.partitionBy("group", "topic")
    largest_first = Window.partitionBy("group").orderBy(F.desc("largest"), "topic")
    newest_first = of_topic.orderBy(F.desc("start_ms"))
    numbered = (
        summed.withColumn("largest", F.max("lag_max").over(of_topic))
        .withColumn("topic_number", F.dense_rank().over(largest_first))
        .withColumn("hour_number", F.row_number().over(newest_first))
    )
    found = numbered.where((F.col("topic_number") <= TOPICS_DRAWN + 1) & (F.col("hour_number") <= HOURS_DRAWN))
    return found.select("group", "topic", "start_ms", "lag_max").collect()


def _period(name: str, length_ms: int) -> Column:
    start = F.floor(F.col("commit_ms") / length_ms) * length_ms
    return F.struct(F.lit(name).alias("period"), start.cast("long").alias("start_ms"))


def _missed(objective: Objective) -> Any:
    """Return a column that is true where the lag is above a limit of the objective, as in `Objective.is_missed`."""
    found = F.lit(False)
    for name, bound in (("group_lag", objective.max_records), ("seconds", objective.max_seconds)):
        found = found if bound is None else found | F.coalesce(F.col(name) > bound, F.lit(False))
    return found


GroupName = Annotated[str, msgspec.Meta(min_length=1, description="a group's name")]
Records = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0, description="a number of seconds, 0 or more")]


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `lag-history`.

    `groups` and `topics` limit the report to the named groups and topics. Commits from `from_time` (inclusive) to
    `to_time` (exclusive) count. `archive` is an archive of `__consumer_offsets`, with commits that compaction has
    removed from the topic; newer commits come from the topic. `max_records` and `max_seconds` are the objective. The
    lag is looked up for about `lag_samples` commits, spread evenly over all commits.
    """

    RULES: ClassVar = (
        CATALOG_OF_BUCKET,
        range_rule("time"),
    )  # In an empty time range, every group would seem to meet the objective.

    bootstrap: Bootstrap
    report: Folder
    groups: list[GroupName] = msgspec.field(default_factory=list)
    topics: list[TopicName] = msgspec.field(default_factory=list)
    from_time: Time | None = None
    to_time: Time | None = None
    archive: Location | None = None
    catalog: Catalog = msgspec.field(default_factory=dict)
    namespace: Namespace = "barnabas"
    max_records: Records | None = None
    max_seconds: Seconds | None = None
    lag_samples: Count = 100_000

    @property
    def objective(self) -> Objective:
        """The allowed lag of each group."""
        return Objective(max_records=self.max_records, max_seconds=self.max_seconds)


class Result(JobResult, frozen=True, kw_only=True):
    """The result of the job; the job also writes it to the report as JSON.

    `records` has the number of records of each kind that were read from `__consumer_offsets`.
    """

    report: str
    read_at_ms: int
    records: dict[str, int]
    commits: int
    commits_with_lag: int
    objective: Objective
    findings: list[str]
    groups: list[GroupLag]
    now: list[Now]

    @property
    def fine(self) -> bool:
        """True if no group missed the objective."""
        return all(each.kept is not False for each in self.groups)

    @property
    def summary(self) -> str:
        """The number of groups and of their commits, and the first group whose lag exceeded the limit, if any."""
        counted = f"{len(self.groups):,} groups made {self.commits:,} commits"
        return summed(f"{counted}, and the lag is known for {self.commits_with_lag:,} of these commits", self.findings)


def run(spark: SparkSession, options: Options, clock: Callable[[], float] = time.time) -> Result:
    """Read the commits, look up the end of the log at the times of some commits, and write the report.

    Raises JobFailed if the commits cannot be read, if a named group or topic has no commits, or if the report cannot be
    written.
    """
    cluster = Cluster(options.bootstrap)
    now_ms = int(clock() * 1000)
    failures = spark_failures(f"reading {CONSUMER_OFFSETS}")
    with report_at(spark, options.report) as report, failures, reading(spark, CONSUMER_OFFSETS):
        read, total, is_current = _records(spark, cluster, options)
        with cached(decoded(read)) as records:
            with phase(spark, "reading commits", total):  # This count fills the cache for the later phases.
                records.count()
            evaluated = _evaluate(records, options, is_current, now_ms)
            with cached(roll_ups(evaluated.history, options.objective)) as rolled:
                result = _result(options, kinds(records), evaluated, rolled, now_ms)
                hours = [TopicHour(**row.asDict()) for row in drawn_hours(rolled, drawn(result.groups))]
                with spark_failures(f"writing report={options.report}"):
                    _write(report, about(now_ms, options.bootstrap), result, hours, rolled, evaluated.history)
    return result


def _records(spark: SparkSession, cluster: Cluster, options: Options) -> tuple[DataFrame, int, bool]:
    """Return the records to read, their approximate number, and whether they include the records now in the topic.

    The records now in the topic are left out if the archive is of an earlier topic of this name, or if the topic was
    deleted.
    """
    if options.archive is None:
        return *_of_topic_beyond(spark, cluster, {}), True
    place = ArchiveOptions(
        topic=CONSUMER_OFFSETS, archive=options.archive, catalog=options.catalog, namespace=options.namespace
    )
    archived = archive_at(spark, place).topic(CONSUMER_OFFSETS)
    records = of_files(spark, archived.paths())
    if not cluster.has(CONSUMER_OFFSETS) or cluster.topic(CONSUMER_OFFSETS).topic_id != archived.topic_id:
        return records, archived.records, False
    ends = archived.ends()
    # A commit that comes meanwhile is in the files, but not in `ends`: its records are read from the topic.
    known = in_ranges(records, [OffsetRange(partition, 0, end) for partition, end in ends.items()])
    beyond, total = _of_topic_beyond(spark, cluster, ends)
    return known.unionByName(beyond), archived.records + total, True


def _of_topic_beyond(spark: SparkSession, cluster: Cluster, ends: Mapping[int, int]) -> tuple[DataFrame, int]:
    topic = cluster.topic(CONSUMER_OFFSETS)
    ranges = pending(ends, cluster.bounds(topic))
    records = of_topic(spark, cluster.bootstrap, topic.name, ranges, counted=True)
    return records, sum(each.offsets for each in ranges)


class _Evaluated(NamedTuple):
    """The commits with their lags, the number of commits, the number of commits with a known lag, and the lags now."""

    history: DataFrame
    commits: int
    known: int
    now: list[Now]


def _evaluate(records: DataFrame, options: Options, is_current: bool, now_ms: int) -> _Evaluated:
    _check_there(records, "groups", "group", options.groups)
    _check_there(records, "topics", "topic", options.topics)
    found = chosen(records, options.groups, options.topics)
    commits = _in_time(found.where(F.col("kind") == COMMIT), options)
    count = commits.count()
    sampled = every(commits, max(1, -(-count // options.lag_samples)))
    standing = newest(found) if is_current and options.to_time is None else []
    moments = [_moment(row, row["commit_ms"]) for row in sampled] + [_moment(row, now_ms) for row in standing]
    known = _lags(options.bootstrap, moments)
    at_commits = [
        (row["log_partition"], row["log_offset"], lag.records, lag.seconds)
        for row, lag in zip(sampled, known[: len(sampled)], strict=True)
        if lag is not None
    ]
    now = [_now(row, lag) for row, lag in zip(standing, known[len(sampled) :], strict=True)]
    return _Evaluated(with_group_lags(with_lags(commits, at_commits)), count, len(at_commits), now)


def _result(options: Options, records: dict[str, int], evaluated: _Evaluated, rolled: DataFrame, now_ms: int) -> Result:
    found = groups(group_days(rolled), evaluated.now, options.objective)
    return Result(
        report=options.report,
        read_at_ms=now_ms,
        records=records,
        commits=evaluated.commits,
        commits_with_lag=evaluated.known,
        objective=options.objective,
        findings=findings_of(found, options.objective),
        groups=found,
        now=evaluated.now,
    )


def _check_there(records: DataFrame, option: str, column: str, wanted: Sequence[str]) -> None:
    """Raise JobFailed if a named group or topic has no commits or tombstones; name up to NAMES_MAX others that have.

    Without commits there is no lag, so the lag objective would count as met.
    """
    if not wanted:
        return
    names = chosen(records, [], []).select(column).distinct()
    is_wanted = F.col(column).isin(list(wanted))
    few = names.where(~is_wanted).orderBy(column).limit(NAMES_MAX)
    found = [row[0] for row in names.where(is_wanted).unionByName(few).collect()]
    if lacking := [each for each in wanted if each not in found]:
        there = ", ".join(each for each in found if each not in wanted) or "none"
        raise JobFailed(
            f"{option}={','.join(lacking)}: {CONSUMER_OFFSETS} has no commits for these {option}; others with "
            f"commits: {there}"
        )


def _in_time(commits: DataFrame, options: Options) -> DataFrame:
    if options.from_time is not None:
        commits = commits.where(F.col("commit_ms") >= since_1970_ms(options.from_time))
    if options.to_time is not None:
        commits = commits.where(F.col("commit_ms") < since_1970_ms(options.to_time))
    return commits


def _moment(row: Row, time_ms: int) -> Moment:
    return Moment(TopicPartition(row["topic"], row["partition"]), row["committed"], time_ms)


def _lags(bootstrap: str, moments: Sequence[Moment]) -> list[Lag | None]:
    lookup = TimeLookup(bootstrap)
    return lags(moments, lookup.ends({each.at for each in moments}), lookup.first_since)


def _now(row: Row, lag: Lag | None) -> Now:
    of_commit = {name: row[name] for name in (*KEY, "committed", "commit_ms")}
    return Now(**of_commit, lag=lag.records if lag else None, seconds=lag.seconds if lag else None)


def _write(
    report: Report, about_it: str, result: Result, hours: Sequence[TopicHour], rolled: DataFrame, history: DataFrame
) -> None:
    by_time = history.drop(*PLACE).orderBy("group", "topic", "partition", "commit_ms")
    by_time.write.parquet(str(report.folder / "history.parquet"))
    rolled.orderBy("period", *KEY, "start_ms").write.parquet(str(report.folder / "rollups.parquet"))
    page = lag_page(about_it, result.groups, hours, result.objective, result.summary)
    report.add_result("lag-history", result, page)
