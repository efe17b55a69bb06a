"""`audit`: check segments, indexes and checkpoints in the log dirs of brokers, and compare replicas batch by batch."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.files.segment_source import (
    GONE,
    Listings,
    LogDir,
    Replica,
    SegmentSource,
    Stray,
    check,
    leader_epochs,
    listed_again,
    parse_log_dirs,
    replicas,
    strays,
    unreadable,
)
from barnabas_jobs.jobs.location import report_at
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.logs.batches import (
    BAD_HEADER,
    NO_PARTITION,
    OFFSET_GAP,
    TORN_BATCH,
    UNREADABLE,
    segment_file,
)
from barnabas_jobs.planning.logs.replicas import (
    EpochBatch,
    Finding,
    HeldBatch,
    LogRead,
    Place,
    SegmentRead,
    audit_page,
    comparable,
    comparison_spans,
    difference,
    ends_early,
    wrong_checkpoint,
    wrong_over_segments,
)
from barnabas_jobs.planning.options import Folder, JobOptions, JobResult, TopicName
from barnabas_jobs.planning.page import bytes_text, time_text
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import cached
from barnabas_jobs.spark.status import phase

REPLICA: Final = ("log_dir", "topic", "partition")
SPANS: Final = "log_dir string, topic string, partition int, since long, committed_until long, untils array<long>"
OFFSETS_NAMED_MAX: Final = 5
"""The largest number of differing offsets that the report names for each partition."""


def extents(batches: DataFrame) -> list[Row]:
    """Return a row for each segment that has batches."""
    return (
        batches.groupBy(*REPLICA, "segment")
        .agg(
            F.min_by("base_offset", "position").alias("first_offset"),
            (F.max_by("last_offset", "position") + 1).alias("end_offset"),
            F.min_by("epoch", "position").alias("first_epoch"),
            F.max_by("epoch", "position").alias("last_epoch"),
            F.count("*").alias("batches"),
            F.sum("size_bytes").alias("bytes"),
        )
        .orderBy(*REPLICA, "segment")
        .collect()
    )


def epochs(batches: DataFrame) -> list[Row]:
    """Return the first and the last batch of each leader epoch in each log.

    A batch is returned as its base offset, its segment and its position in the segment.
    """
    at = F.struct(F.col("base_offset").alias("offset"), "segment", "position")
    return (
        batches.groupBy(*REPLICA, "epoch")
        .agg(F.min(at).alias("first"), F.max(at).alias("last"))
        .orderBy(*REPLICA, "epoch")
        .collect()
    )


def differing(batches: DataFrame, spans: Sequence[Any]) -> DataFrame:
    """Return topic, partition and base offset of each batch that differs between replicas, and `is_committed`.

    `is_committed` is true if replicas that have committed the offset have different batches, or if one of these
    replicas lacks the batch. A replica that has not committed the offset may lack the batch; that is no difference.

    `spans` has one row with the columns SPANS for each replica. The batches of the replica are compared from the offset
    `since` on. The replica has committed all offsets below `committed_until`. `untils` lists the `committed_until` of
    all replicas of the partition.
    """
    table = F.broadcast(batches.sparkSession.createDataFrame(list(spans), SPANS))
    offset = F.col("base_offset")
    here = batches.join(table, list(REPLICA)).where(offset >= F.col("since"))
    content = F.xxhash64("last_offset", "epoch", "size_bytes", "computed_crc")
    is_committed = offset < F.col("committed_until")
    committed = F.when(is_committed, content)
    grouped = here.groupBy("topic", "partition", "base_offset").agg(
        F.count_distinct(F.when(is_committed, F.col("log_dir"))).alias("holders"),
        F.min(committed).alias("least"),
        F.max(committed).alias("most"),
        F.min(content).alias("least_of_all"),
        F.max(content).alias("most_of_all"),
        F.first("untils").alias("untils"),
    )
    expected = F.size(F.filter("untils", lambda until: until > offset))
    differs = (F.col("holders") != expected) | (F.col("least") != F.col("most"))
    to_come = F.col("least_of_all") != F.col("most_of_all")
    return grouped.select(
        "topic",
        "partition",
        "base_offset",
        F.coalesce(differs, F.lit(False)).alias("is_committed"),
        to_come.alias("any"),
    ).where(F.col("is_committed") | F.col("any"))


def first_of_each_partition(offsets: DataFrame) -> DataFrame:
    """Return the OFFSETS_NAMED_MAX rows with the lowest offsets in each partition."""
    order = Window.partitionBy("topic", "partition").orderBy("base_offset")
    return offsets.withColumn("number", F.row_number().over(order)).where(F.col("number") <= OFFSETS_NAMED_MAX)


def held(batches: DataFrame, offsets: DataFrame) -> list[Row]:
    """Return the batches that begin at these offsets."""
    keys = ["topic", "partition", "base_offset"]
    return batches.join(F.broadcast(offsets.select(*keys)), keys).orderBy(*keys, "broker", "log_dir").collect()


LogDirWord = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]+:/.*",
        description="ID:/FOLDER, the id of a broker and one of its log dirs",
    ),
]
STOPS: Final = frozenset((BAD_HEADER, TORN_BATCH, UNREADABLE))
FINDINGS_NAMED_MAX: Final = 200
SCHEMA: Final = (
    "kind string, broker int, log_dir string, topic string, partition int, file string, position long, offset long, "
    "detail string"
)
Key = tuple[str, str, int]
"""The log dir, topic and partition of a replica."""


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `audit`.

    `log_dirs` are all log dirs of the audited brokers, as `ID:/FOLDER`. `topics` limits the audit to these topics.
    `compacted` names topics that were compacted in the past, and so may lack offsets. `deep` also reads the records of
    each batch.
    """

    log_dirs: list[LogDirWord]
    report: Folder
    topics: list[TopicName] = msgspec.field(default_factory=list)
    compacted: list[TopicName] = msgspec.field(default_factory=list)
    deep: bool = False


class Result(JobResult, frozen=True, kw_only=True):
    """The result of the audit; the job also writes it to the report as JSON.

    `findings` has the first findings; `findings.parquet` has all. `uncommitted_differences` counts offsets at or above
    the high watermark of a replica, where replicas may differ until a follower truncates its log. `gone_segments`
    counts the segments that brokers removed or compacted during the audit.
    """

    report: str
    brokers: list[int]
    partitions: int
    replicas: int
    segments: int
    gone_segments: int
    batches: int
    bytes: int
    seconds: float
    found: dict[str, int]
    differing_offsets: int
    uncommitted_differences: int
    findings: list[Finding]

    @property
    def fine(self) -> bool:
        """True if there is no finding."""
        return not self.found

    @property
    def summary(self) -> str:
        """The number of findings, and what the audit read, in two sentences."""
        read = f"{self.replicas:,} replicas of {self.partitions:,} partitions, {self.segments:,} segments"
        verdict = f"{sum(self.found.values()):,} problems were found" if self.found else "No problem was found"
        return (
            f"{verdict}. The audit read {read}, {self.batches:,} batches with {bytes_text(self.bytes)}, in "
            f"{self.seconds:,.1f} s."
        )


class FilesRead(NamedTuple):
    """The segments, the epochs and the problems that were read from the files, by replica."""

    segments: dict[Key, list[Row]]
    epochs: dict[Key, list[EpochBatch]]
    problems: dict[Key, list[Row]]


def run(
    spark: SparkSession,
    options: Options,
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], float] = time.time,
) -> Result:
    """Read every file of the log dirs once, and write the report.

    A file that cannot be read becomes a finding. Raises JobFailed if a log dir cannot be listed or belongs to another
    broker than the option `log_dirs` says, or if the report cannot be written.
    """
    log_dirs = parse_log_dirs(options.log_dirs)
    check(log_dirs)
    listed = replicas(log_dirs, options.topics)
    _check_found(options, listed)
    with report_at(spark, options.report) as report, spark_failures("reading the log dirs"):
        begun_s = clock()
        with cached(_rows(spark, options)) as rows:
            batches = rows.where("problem IS NULL")
            with phase(spark, "reading segments"):
                read = _read(rows, batches)
            seconds = clock() - begun_s
            listings = listed_again(log_dirs, listed)
            clean_until = _clean_until(listings)
            compacted = clean_until.keys() | {
                each.partition for each in listed if each.partition.topic in options.compacted
            }
            logs = [_log(each, read, compacted) for each in listings]
            with phase(spark, "comparing replicas"):
                between = _compared(batches, logs, clean_until)
        findings = [*_own_findings(read, logs), *between.findings, *_beside_logs(log_dirs, options)]
        result = _result(options, logs, read, findings, between, seconds)
        about_it = (
            f"This report was made at {time_text(int(now() * 1000))} UTC for the brokers "
            f"{', '.join(map(str, result.brokers))}."
        )
        page = audit_page(about_it, result.summary, _bytes_by_broker(logs, read), result.found, findings)
        report.add_table("findings", SCHEMA, map(msgspec.structs.astuple, findings))
        report.add_result("audit", result, page)
    return result


def _check_found(options: Options, listed: Sequence[Replica]) -> None:
    there = {each.partition.topic for each in listed}
    lacking = [name for name in options.topics if name not in there]
    if lacking:
        raise JobFailed(f"topics={','.join(lacking)}: no log dir has a partition of these topics")
    if not listed:
        raise JobFailed(f"log_dirs={','.join(options.log_dirs)}: the log dirs hold no partition")


def _rows(spark: SparkSession, options: Options) -> DataFrame:
    """Return the rows of the segments; Spark reads them when they are first used."""
    spark.dataSource.register(SegmentSource)
    lists = {name: ",".join(getattr(options, name)) for name in ("log_dirs", "topics", "compacted")}
    source = spark.read.format(SegmentSource.name()).options(**lists, deep=str(options.deep).lower())
    return source.load()


def _read(rows: DataFrame, batches: DataFrame) -> FilesRead:
    read = FilesRead(defaultdict(list), defaultdict(list), defaultdict(list))
    for row in rows.where("problem IS NOT NULL").collect():
        read.problems[_key(row)].append(row)
    for row in extents(batches):
        read.segments[_key(row)].append(row)
    for row in epochs(batches):
        read.epochs[_key(row)] += [EpochBatch(row["epoch"], *row[end]) for end in ("first", "last")]
    return read


def _key(row: Row) -> Key:
    return row["log_dir"], row["topic"], row["partition"]


def _clean_until(listed: Sequence[Listings]) -> dict[TopicPartition, int]:
    """Return, for each partition that was compacted, the offset below which some replica may have been compacted.

    The offset is the highest `clean_until` of the partition's replicas.
    """
    found: dict[TopicPartition, int] = {}
    for each in listed:
        if each.clean_until is not None:
            partition = each.before.partition
            found[partition] = max(found.get(partition, 0), each.clean_until)
    return found


def _log(listings: Listings, read: FilesRead, compacted: Collection[TopicPartition]) -> LogRead:
    replica, offsets = listings.before, listings.offsets
    key = (replica.log_dir.path, *replica.partition)
    problems, rows = read.problems[key], read.segments[key]
    segments = [
        SegmentRead(row["segment"], row["first_offset"], row["end_offset"], row["first_epoch"], row["last_epoch"])
        for row in rows
    ]
    listed = {*replica.segments, *(each.segment for each in segments)}
    gone = {row["segment"] for row in problems if row["problem"] == GONE}
    return LogRead(
        place=Place(*replica.log_dir, replica.partition),
        topic_id=replica.topic_id,
        segments=segments,
        lost_sight=frozenset(gone | listed.difference(listings.now.segments)),
        stopped=frozenset(row["segment"] for row in problems if row["problem"] in STOPS),
        last_segment=max(listed, default=0),
        recovery_point=offsets.recovery_point,
        high_watermark=offsets.high_watermark,
        has_gaps=replica.partition in compacted,
    )


def _own_findings(read: FilesRead, logs: Sequence[LogRead]) -> Iterator[Finding]:
    """Yield the findings that need no comparison of replicas, log by log."""
    for log in logs:
        key = (log.place.log_dir, *log.place.partition)
        for row in read.problems[key]:
            if row["problem"] != GONE and not (log.has_gaps and row["problem"] == OFFSET_GAP):
                file = segment_file(row["segment"], row["suffix"])
                where = {"position": row["position"], "offset": row["base_offset"]}
                yield log.place.finding(row["problem"], file, row["detail"], **where)
        yield from wrong_over_segments(log)
        yield from ends_early(log)
        checkpoint = leader_epochs(f"{log.place.log_dir}/{log.place.partition}")
        yield from wrong_checkpoint(log, checkpoint, read.epochs[key])


def _beside_logs(log_dirs: Sequence[LogDir], options: Options) -> Iterator[Finding]:
    """Yield the findings about the log dirs themselves; stray files are reported only if all topics are audited."""
    for each in unreadable(log_dirs):
        yield _of_log_dir(UNREADABLE, each)
    for each in [] if options.topics else strays(log_dirs):
        yield _of_log_dir(NO_PARTITION, each)


def _of_log_dir(kind: str, stray: Stray) -> Finding:
    broker, log_dir = stray.log_dir
    return Finding(kind=kind, broker=broker, log_dir=log_dir, file=stray.path, detail=stray.detail)


class Comparison(NamedTuple):
    """The findings about replicas, and the numbers of committed and uncommitted offsets at which replicas differ."""

    findings: list[Finding]
    differing: int
    uncommitted: int


def _compared(batches: DataFrame, logs: Sequence[LogRead], clean_until: Mapping[TopicPartition, int]) -> Comparison:
    by_partition: dict[TopicPartition, list[LogRead]] = defaultdict(list)
    for log in logs:
        by_partition[log.place.partition].append(log)
    findings: list[Finding] = []
    for partition, found in by_partition.items():
        by_partition[partition], others = comparable(found)
        findings += others
    spans = [
        row
        for partition, found in by_partition.items()
        for row in comparison_spans(found, clean_until.get(partition, 0))
    ]
    with cached(differing(batches, spans)) as offsets:
        counts = {row["is_committed"]: row["count"] for row in offsets.groupBy("is_committed").count().collect()}
        committed = counts.get(True, 0)
        rows = held(batches, first_of_each_partition(offsets.where("is_committed"))) if committed else []
    return Comparison(findings + list(_differences(rows, by_partition)), committed, counts.get(False, 0))


def _differences(rows: Sequence[Row], logs: Mapping[TopicPartition, Sequence[LogRead]]) -> Iterator[Finding]:
    by_offset: dict[tuple[TopicPartition, int], dict[str, HeldBatch]] = defaultdict(dict)
    for row in rows:
        batch = HeldBatch(*(row[name] for name in HeldBatch._fields))
        by_offset[TopicPartition(row["topic"], row["partition"]), row["base_offset"]][row["log_dir"]] = batch
    for (partition, offset), found in by_offset.items():
        places = [each.place for each in logs[partition] if each.committed_until > offset]
        yield difference(offset, {place: found.get(place.log_dir) for place in places})


def _result(
    options: Options,
    logs: Sequence[LogRead],
    read: FilesRead,
    findings: Sequence[Finding],
    between: Comparison,
    seconds: float,
) -> Result:
    rows = [row for found in read.segments.values() for row in found]
    return Result(
        report=options.report,
        brokers=sorted({log.place.broker for log in logs}),
        partitions=len({log.place.partition for log in logs}),
        replicas=len(logs),
        segments=len(rows),
        gone_segments=sum(len(log.lost_sight) for log in logs),
        batches=sum(row["batches"] for row in rows),
        bytes=sum(row["bytes"] for row in rows),
        seconds=round(seconds, 3),
        found=dict(sorted(Counter(each.kind for each in findings).items())),
        differing_offsets=between.differing,
        uncommitted_differences=between.uncommitted,
        findings=list(findings[:FINDINGS_NAMED_MAX]),
    )


def _bytes_by_broker(logs: Sequence[LogRead], read: FilesRead) -> dict[int, int]:
    sizes: dict[int, int] = defaultdict(int)
    for log in logs:
        sizes[log.place.broker] += sum(row["bytes"] for row in read.segments[log.place.log_dir, *log.place.partition])
    return dict(sorted(sizes.items()))
