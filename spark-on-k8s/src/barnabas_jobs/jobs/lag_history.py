"""`lag-history`: report, by hour and day, the lag of groups when they committed, and whether it met the objective."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, ClassVar, NamedTuple

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.
from pyspark.storagelevel import StorageLevel

from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition
from barnabas_jobs.jobs.location import Report, archive_at, report_at
from barnabas_jobs.kafka.time_lookup import TimeLookup
from barnabas_jobs.kafka.topics import Cluster
from barnabas_jobs.planning.archived import OffsetRange, pending
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.lag.end_offsets import Lag, Moment, lags
from barnabas_jobs.planning.lag.offset_records import COMMIT
from barnabas_jobs.planning.lag.report import (
    GroupDay,
    GroupLag,
    Now,
    Objective,
    TopicHour,
    drawn,
    findings_of,
    groups,
    lag_page,
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
from barnabas_jobs.planning.page import about
from barnabas_jobs.spark.commits import (
    KEY,
    PLACE,
    chosen,
    committed_names,
    decoded,
    drawn_hours,
    every,
    group_days,
    kinds,
    newest,
    roll_ups,
    with_group_lags,
    with_lags,
)
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import in_ranges, of_files, of_topic, reading
from barnabas_jobs.spark.status import phase

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
    looked_at_ms: int
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
        with _kept(decoded(read)) as records:
            with phase(spark, "reading commits", total):  # This count fills the cache for the later phases.
                records.count()
            looked = _looked_at(records, options, is_current, now_ms)
            with _kept(roll_ups(looked.history, options.objective)) as rolled:
                result = _result(options, kinds(records), looked, rolled, now_ms)
                hours = [TopicHour(**row.asDict()) for row in drawn_hours(rolled, drawn(result.groups))]
                with spark_failures(f"writing report={options.report}"):
                    _write(report, about(now_ms, options.bootstrap), result, hours, rolled, looked.history)
    return result


@contextmanager
def _kept(frame: DataFrame) -> Iterator[DataFrame]:
    """Cache the frame in memory and on disk while the block runs."""
    frame.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield frame
    finally:
        frame.unpersist()


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


class _Looked(NamedTuple):
    """The commits with their lags, the number of commits, the number of commits with a known lag, and the lags now."""

    history: DataFrame
    commits: int
    known: int
    now: list[Now]


def _looked_at(records: DataFrame, options: Options, is_current: bool, now_ms: int) -> _Looked:
    _check_there("groups", committed_names(records, "group", options.groups), options.groups)
    _check_there("topics", committed_names(records, "topic", options.topics), options.topics)
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
    return _Looked(with_group_lags(with_lags(commits, at_commits)), count, len(at_commits), now)


def _result(options: Options, records: dict[str, int], looked: _Looked, rolled: DataFrame, now_ms: int) -> Result:
    days = [GroupDay(**row.asDict()) for row in group_days(rolled)]
    found = groups(days, looked.now, options.objective)
    return Result(
        report=options.report,
        looked_at_ms=now_ms,
        records=records,
        commits=looked.commits,
        commits_with_lag=looked.known,
        objective=options.objective,
        findings=findings_of(found, options.objective),
        groups=found,
        now=looked.now,
    )


def _check_there(option: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise JobFailed if a named group or topic has no commits.

    Without commits there is no lag, so the lag objective would count as met.
    """
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
    behind, seconds = (None, None) if lag is None else (lag.records, lag.seconds)
    return Now(
        group=row["group"],
        topic=row["topic"],
        partition=row["partition"],
        committed=row["committed"],
        commit_ms=row["commit_ms"],
        lag=behind,
        seconds=seconds,
    )


def _write(
    report: Report, about_it: str, result: Result, hours: Sequence[TopicHour], rolled: DataFrame, history: DataFrame
) -> None:
    by_time = history.drop(*PLACE).orderBy("group", "topic", "partition", "commit_ms")
    by_time.write.parquet(str(report.folder / "history.parquet"))
    rolled.orderBy("period", *KEY, "start_ms").write.parquet(str(report.folder / "rollups.parquet"))
    page = lag_page(about_it, result.groups, hours, result.objective, result.summary)
    report.add_result("lag-history", result, page)
