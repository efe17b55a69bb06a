"""`verify`: compare an archive with its topic by counts, gaps and checksums, and name the offsets that differ."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_jobs.files.archive_tables import ArchivedTopic
from barnabas_jobs.jobs.location import archive_at
from barnabas_jobs.kafka.topics import Cluster, Topic, check_same_id
from barnabas_jobs.planning.archived import Bounds, OffsetRange, overlap
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.options import ArchiveOptions, Bootstrap, JobResult, TopicName
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import cached, fingerprint, in_ranges, of_files, of_topic, reading, with_inside
from barnabas_jobs.spark.status import phase

DIFFERENCES_NAMED_MAX: Final = 20
ONLY_IN_ARCHIVE: Final = "only in the archive"
ONLY_IN_TOPIC: Final = "only in the topic"
OTHER_CONTENT: Final = "other content"
TWICE: Final = "more than once"

Match = Literal["offset", "order"]


class Options(ArchiveOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `verify`.

    `match=order` compares records by their order in each partition instead of by offset, for a topic into which a
    whole archive was restored. `topic_id` chooses the archived records of an earlier topic of this name. `against` is
    another topic to compare with.
    """

    bootstrap: Bootstrap
    topic_id: str | None = None
    against: TopicName | None = None
    match: Match = "offset"


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of a partition: the offset ranges in archive and topic, the compared range, and record counts."""

    partition: int
    archived: tuple[int, int]
    live: Bounds
    compared: tuple[int, int]
    archive_records: int
    topic_records: int
    ledger_records: int
    equal: bool


class Difference(msgspec.Struct, frozen=True):
    """A record that differs between archive and topic.

    `position` is the record's offset. With `match=order` it is the number of records before this one in the partition.
    """

    partition: int
    position: int
    kind: str


class Result(JobResult, frozen=True, kw_only=True):
    """The result of a comparison; `differences` has the first differing records.

    `shorter_partitions` end earlier in the topic than in the archive: the topic has lost its last records.
    `deleted_records` is the number of records that somebody has deleted from the table since they were archived.
    """

    table: str
    topic: str
    topic_id: str
    live_topic: str
    compacted: bool
    partitions: list[PartitionResult]
    damaged_partitions: list[int]
    shorter_partitions: list[int]
    deleted_records: int
    differing_records: dict[str, int]
    differences: list[Difference]

    @property
    def fine(self) -> bool:
        """True if topic and archive are equal, except for records that were removed from one of them on purpose.

        Compaction removes records from the topic, and another program may delete records from the table.
        """
        allowed = {ONLY_IN_ARCHIVE} if self.compacted else set()
        if self.differing_records.get(ONLY_IN_TOPIC, 0) <= self.deleted_records:
            allowed.add(ONLY_IN_TOPIC)
        return not self.damaged_partitions and not self.shorter_partitions and set(self.differing_records) <= allowed

    @property
    def summary(self) -> str:
        """The differences in one line, or `equal`."""
        kinds = [f"{count} records {kind}" for kind, count in self.differing_records.items()]
        damaged = [
            f"the table has more or fewer records of partition {each} than were archived"
            for each in self.damaged_partitions
        ]
        damaged += [
            f"partition {each} of the topic ends at a lower offset than the archive" for each in self.shorter_partitions
        ]
        first = [
            f"the first difference is in partition {each.partition} at position {each.position} "
            "(the position is an offset; with match=order, it is the number of records before the difference)"
            for each in self.differences[:1]
        ]
        return ", ".join(kinds + damaged + first) or "equal"


class Live(NamedTuple):
    """The topic to compare the archive with, and the start and end offset of each partition."""

    cluster: Cluster
    topic: Topic
    bounds: dict[int, Bounds]


def run(spark: SparkSession, options: Options) -> Result:
    """Compare an archive with a topic.

    Raises JobFailed if either cannot be read, or if they have another topic name or topic id than the options allow.
    """
    archived = archive_at(spark, options).topic(options.topic, options.topic_id)
    cluster = Cluster(options.bootstrap)
    topic = cluster.topic(options.against or options.topic)
    if options.topic_id is None and options.against is None and archived.topic_id != topic.topic_id:
        raise JobFailed(
            f"topic={topic.name} has the id {topic.topic_id}, but the newest table of the archive, {archived.table}, "
            f"is of {archived.topic_id}: the topic was deleted and created again. Run `archive` first, or set "
            "topic_id=... to compare with an earlier topic id."
        )
    with reading(spark, topic.name):
        result = compare(spark, archived, Live(cluster, topic, cluster.bounds(topic)), options.match)
        check_same_id(cluster, topic)
        return result


def compare(
    spark: SparkSession,
    archived: ArchivedTopic,
    live: Live,
    match: Match = "offset",
    *,
    only_shared: bool = False,
) -> Result:
    """Compare the records at the offsets that both archive and topic have; `match=order` compares all records in order.

    Other archived records are only counted; with `only_shared`, their keys and values need not be read.
    """
    spans, counted = archived.spans(), archived.records_by_partition()
    records = in_ranges(of_files(spark, archived.paths()), [each._replace(start=0) for each in spans])
    nothing = Bounds(0, 0)
    if match == "offset":
        shared = [overlap(each, live.bounds.get(each.partition, nothing)) for each in spans]
    else:
        shared = [OffsetRange(partition, *bounds) for partition, bounds in live.bounds.items()]
    wanted = [each for each in shared if each.offsets > 0]
    topic = of_topic(spark, live.cluster.bootstrap, live.topic.name, wanted)
    with spark_failures(f"comparing {live.topic.name} with its archive"):
        whole = {row["partition"]: row["count"] for row in records.groupBy("partition").count().collect()}
        sides = _sides(records, topic, wanted, match, only_shared)
        with phase(spark, "comparing", archived.records):
            sums = _sums(sides)
        unequal = [partition for partition, row in sums.items() if not row["equal"]]
        kinds, differences = _differences(sides.where("inside"), unequal)
    damaged, deleted = _missing(counted, whole, archived.records)
    return Result(
        table=archived.table,
        topic=archived.topic,
        topic_id=archived.topic_id,
        live_topic=live.topic.name,
        compacted="compact" in live.cluster.config(live.topic.name).get("cleanup.policy", ""),
        partitions=[_partition(each, live, shared, sums, counted) for each in spans],
        damaged_partitions=damaged,
        shorter_partitions=[each.partition for each in spans if match == "offset" and _ends_early(each, live)],
        deleted_records=deleted,
        differing_records=kinds,
        differences=differences,
    )


def _missing(counted: Mapping[int, int], found: Mapping[int, int], records: int) -> tuple[list[int], int]:
    """Return the damaged partitions, and the number of records that were deleted from the table on purpose.

    `counted` is the number of records that were archived, and `found` the number in the files, by partition. `records`
    is the number that the table itself says it has: if it misses as many as the files, they were deleted.
    """
    missing = {partition: count - found.get(partition, 0) for partition, count in counted.items()}
    deleted = max(0, sum(counted.values()) - records)
    are_deleted = all(count >= 0 for count in missing.values()) and sum(missing.values()) == deleted
    return ([], deleted) if are_deleted else ([each for each, count in missing.items() if count], 0)


def _ends_early(archived: OffsetRange, live: Live) -> bool:
    return archived.partition not in live.bounds or live.bounds[archived.partition].latest < archived.end


def _sides(
    archived: DataFrame, topic: DataFrame, shared: list[OffsetRange], match: Match, only_shared: bool
) -> DataFrame:
    if match == "offset" and not only_shared:
        archived = with_inside(archived, shared)
    else:
        compared = in_ranges(archived, shared) if match == "offset" else archived
        archived = compared.withColumn("inside", F.lit(True))
    of_topic_side = _placed(topic.withColumn("inside", F.lit(True)), "topic", match)
    return _placed(archived, "archive", match).unionByName(of_topic_side)


def _placed(records: DataFrame, side: str, match: Match) -> DataFrame:
    """Return a row for each record, with `side` ("archive" or "topic"), its partition, position and content hash.

    The column `inside` of `records` is kept: it is true for records that take part in the comparison.
    """
    if match == "offset":
        position, content = F.col("offset"), fingerprint("timestampType")
    else:
        position = F.row_number().over(Window.partitionBy("partition").orderBy("offset")).cast("long") - 1
        content = fingerprint()
    placed = F.lit(side).alias("side"), position.alias("position"), content.alias("content")
    return records.select("partition", *placed, "inside")


def _sums(sides: DataFrame) -> dict[int, dict[str, int]]:
    """Return by partition the numbers of compared records in archive and topic, and whether the two are equal.

    They are equal if the numbers and the checksums of the records are equal.
    """
    columns = []
    for side in ("archive", "topic"):
        here = (F.col("side") == side) & F.col("inside")
        columns.append(F.count(F.when(here, 1)).alias(side))
        columns.append(F.bit_xor(F.when(here, F.xxhash64("position", "content"))).alias(f"{side}_sum"))
    rows = sides.groupBy("partition").agg(*columns).collect()
    return {
        row["partition"]: {
            "archive": row["archive"],
            "topic": row["topic"],
            "equal": row["archive"] == row["topic"] and row["archive_sum"] == row["topic_sum"],
        }
        for row in rows
    }


def _differences(sides: DataFrame, partitions: list[int]) -> tuple[dict[str, int], list[Difference]]:
    """Return, for these partitions, the number of differing records by kind, and the first differing records."""
    if not partitions:
        return {}, []
    here = sides.where(F.col("partition").isin(partitions))
    one, other = (F.when(F.col("side") == side, F.col("content")) for side in ("archive", "topic"))
    times = F.greatest(F.count(one), F.count(other)).alias("times")
    paired = here.groupBy("partition", "position").agg(F.max(one).alias("archive"), F.max(other).alias("topic"), times)
    kind = (
        F.when(F.col("times") > 1, TWICE)
        .when(F.col("topic").isNull(), ONLY_IN_ARCHIVE)
        .when(F.col("archive").isNull(), ONLY_IN_TOPIC)
        .when(F.col("archive") != F.col("topic"), OTHER_CONTENT)
    )
    with cached(
        paired.select("partition", "position", kind.alias("kind")).where(F.col("kind").isNotNull())
    ) as differing:
        kinds = {row["kind"]: row["count"] for row in differing.groupBy("kind").count().orderBy("kind").collect()}
        first = differing.orderBy("partition", "position").limit(DIFFERENCES_NAMED_MAX).collect()
    return kinds, [Difference(row["partition"], row["position"], row["kind"]) for row in first]


def _partition(
    span: OffsetRange,
    live: Live,
    shared: list[OffsetRange],
    sums: dict[int, dict[str, int]],
    counted: Mapping[int, int],
) -> PartitionResult:
    found = sums.get(span.partition, {"archive": 0, "topic": 0, "equal": True})
    compared = next((each for each in shared if each.partition == span.partition), span)
    return PartitionResult(
        partition=span.partition,
        archived=(span.start, span.end),
        live=live.bounds.get(span.partition, Bounds(0, 0)),
        compared=(compared.start, compared.end),
        archive_records=found["archive"],
        topic_records=found["topic"],
        ledger_records=counted[span.partition],
        equal=bool(found["equal"]),
    )
