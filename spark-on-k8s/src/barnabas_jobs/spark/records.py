"""Records of a topic or of archive files as data frames, with the columns of Spark's Kafka connector."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
from py4j.protocol import Py4JNetworkError
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.
from pyspark.sql.pandas.types import from_arrow_schema

from barnabas_jobs.credentials import for_spark
from barnabas_jobs.planning.archived import OffsetRange

SCHEMA: Final = (
    "partition int, offset long, timestamp timestamp, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
REJECTED: Final = "rejected"
"""The column with the reason why the key or value of a record could not be decoded."""
COLUMNS: Final = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
INSIDE: Final = "offset >= start AND offset < end"
PAGE_CHECKSUMS: Final = "parquet.page.verify-checksum.enabled"
DAY_MS: Final = 86_400_000
EARLIEST_MS: Final = -2_208_988_800_000  # The time is 1900-01-01T00:00:00Z.
LATEST_MS: Final = 253_402_300_799_999  # The time is the end of the year 9999, the last one of pyiceberg.
TASK_RECORDS: Final = 500_000
"""The largest number of offsets in a task; a long partition would otherwise keep one core busy alone."""
POLL_RECORDS: Final = 10_000
"""The largest number of records of a poll. After each one, Spark asks for the log's start and end.

The 500 of Kafka's default make most requests to brokers such questions. Memory is bounded by the bytes of a fetch.
"""
FIRST_READERS: Final = "spark.sql.sources.useV1SourceList"
"""The setting that lists the sources that Spark reads through its V1 interface.

Kafka must not be in the list if Spark is to count the records that it reads, because Kafka's V1 reader counts none.
"""
BATCH_HEADER_BYTES: Final = 61
BODY_BYTES: Final = 3
"""The size of a record's attributes, timestamp delta and offset delta, if the record is the first of its batch."""
NO_DAY: Final = "timestamp before the year 1900 or after 9999"


class Counted(NamedTuple):
    """The records of a partition: their number, first and last offset, and the number that do not fit the schema."""

    records: int
    first: int
    last: int
    mismatched: int


def of_topic(
    spark: SparkSession, bootstrap: str, topic: str, ranges: Sequence[OffsetRange], *, counted: bool = False
) -> DataFrame:
    """Return the committed records in these offset ranges.

    The Spark job fails if some of these records are deleted before Spark reads them. With `counted`, Spark reads
    through its V2 interface, because only there the connector's tasks report how many records they have read.
    """
    if not ranges:
        return spark.createDataFrame([], SCHEMA)
    chosen = {
        "assign": json.dumps({topic: [each.partition for each in ranges]}),
        "startingOffsets": _offsets(topic, {each.partition: each.start for each in ranges}),
        "endingOffsets": _offsets(topic, {each.partition: each.end for each in ranges}),
        "maxRecordsPerPartition": str(TASK_RECORDS),
    }
    with settings(spark, {FIRST_READERS: ""} if counted else {}):
        return spark.read.format("kafka").options(**_source(bootstrap), **chosen).load().select(*COLUMNS)


def stream_of_topic(
    spark: SparkSession, bootstrap: str, topic: str, starts: Mapping[int, int], records_max: int
) -> DataFrame:
    """Return a stream of the committed records from these offsets on, about `records_max` in a batch.

    Partitions that are added later are read from their start.
    """
    chosen = {
        "subscribe": topic,
        "startingOffsets": _offsets(topic, starts),
        "maxOffsetsPerTrigger": str(records_max),
    }
    return spark.readStream.format("kafka").options(**_source(bootstrap), **chosen).load().select(*COLUMNS)


def batch_ends(checkpoint: Path, number: int, topic: str) -> dict[int, int]:
    """Return the offset up to which a batch reads each partition, from the checkpoint of its query.

    Spark writes the file of a batch before the batch begins: a line with the version, one with settings, and one with
    the offsets of each source.
    """
    offsets = (checkpoint / "offsets" / str(number)).read_text(encoding="utf-8").splitlines()[2]
    return {int(partition): offset for partition, offset in json.loads(offsets).get(topic, {}).items()}


def _source(bootstrap: str) -> dict[str, str]:
    return {
        **for_spark(),
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "kafka.max.poll.records": str(POLL_RECORDS),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }


def _offsets(topic: str, offsets: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in offsets.items()}})


@contextmanager
def reading(spark: SparkSession, topic: str) -> Iterator[None]:
    """Let Spark read data frames of this topic while the `with` block runs.

    For an internal topic, make Spark list the partitions with a consumer, because its admin client does not find them.
    """
    chosen = {"spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true"} if topic.startswith("__") else {}
    with settings(spark, chosen):
        yield


def of_files(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Return the records of Parquet files; Spark fails at a page whose bytes do not match their checksum."""
    if not paths:
        return spark.createDataFrame([], SCHEMA)
    files = spark.read.schema(SCHEMA).option(PAGE_CHECKSUMS, "true")
    return files.parquet(*paths).select(*COLUMNS)


def files_of_table(spark: SparkSession, paths: Sequence[str], columns: pa.Schema) -> DataFrame:
    """Return the records of Parquet files with all columns of their table; a file may lack some of them."""
    return spark.read.schema(from_arrow_schema(columns)).option(PAGE_CHECKSUMS, "true").parquet(*paths)


def rejected(spark: SparkSession, paths: Sequence[str], commit: int) -> DataFrame:
    """Return the records of the files of a commit whose key or value could not be decoded, with the reason."""
    files = spark.read.schema(f"{SCHEMA}, {REJECTED} string").parquet(*paths).where(F.col(REJECTED).isNotNull())
    return files.withColumnRenamed(REJECTED, "reason").withColumn("commit", F.lit(commit).cast("long"))


def in_ranges(records: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the records whose offsets are in the range of their partition."""
    return records.join(_table(records, ranges), "partition").where(INSIDE).select(records.columns)


def with_inside(records: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return all records, with the column `inside`: True if the offset is in the range of its partition."""
    joined = records.join(_table(records, ranges), "partition", "left")
    return joined.select(*records.columns, F.coalesce(F.expr(INSIDE), F.lit(False)).alias("inside"))


def numbers_before(records: DataFrame, marks: Mapping[int, Sequence[int]]) -> dict[tuple[int, int], int]:
    """Return the number of records before each mark. A mark is an offset; `marks` has those of a partition, sorted."""
    between = [
        OffsetRange(partition, start, end) for partition, ends in marks.items() for start, end in pairwise((0, *ends))
    ]
    counted = records.join(_table(records, between), "partition").where(INSIDE).groupBy("partition", "end").count()
    counts = {(row["partition"], row["end"]): row["count"] for row in counted.collect()}
    found: dict[tuple[int, int], int] = {}
    for partition, ends in marks.items():
        sums = accumulate(counts.get((partition, end), 0) for end in ends)
        found |= {(partition, end): count for end, count in zip(ends, sums, strict=True)}
    return found


def _table(records: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    return F.broadcast(records.sparkSession.createDataFrame(list(ranges), "partition int, start long, end long"))


def with_true_timestamps(records: DataFrame) -> DataFrame:
    """Return the records in such a way that Spark fails when it reads a record from before 1900 or after 9999.

    Spark's Kafka connector may have changed the timestamp of an older record. The connector converts timestamps through
    `java.sql`, which has the Julian calendar before 1582, and other time zone offsets before 1900. pyiceberg cannot
    commit days after 9999.
    """
    place = (F.lit("partition "), F.col("partition"), F.lit(" offset "), F.col("offset"))
    failure = F.raise_error(F.concat(*place, F.lit(f" has a {NO_DAY}")))
    is_true = F.unix_millis("timestamp").between(EARLIEST_MS, LATEST_MS)
    return records.withColumn("timestamp", F.when(is_true, F.col("timestamp")).otherwise(failure))


def write_parquet(records: DataFrame, folder: str) -> int:
    """Write records to Parquet files, and return their number.

    Each day (UTC) gets a folder, and each file is in the order of partitions and offsets.
    """
    given = Observation()
    day = F.date_add(F.lit("1970-01-01").cast("date"), F.floor(F.unix_millis("timestamp") / DAY_MS).cast("int"))
    observed = records.observe(given, F.count(F.lit(1)).alias("records"))
    ordered = observed.withColumn("date", day).sortWithinPartitions("date", "partition", "offset")
    with settings(records.sparkSession, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        ordered.write.partitionBy("date").option("compression", "zstd").parquet(folder)
    return int(given.get["records"])


def counts(spark: SparkSession, paths: Sequence[str]) -> dict[int, Counted]:
    """Count, for each partition in the files, the records and those that do not fit the schema.

    Return also the first and the last offset of the partition. Keys and values are not read.
    """
    if not paths:
        return {}
    files = spark.read.schema(f"{SCHEMA}, json_fits boolean, {REJECTED} string").parquet(*paths)
    columns = (
        F.count("*").alias("records"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count_if(~F.col("json_fits") | F.col(REJECTED).isNotNull()).alias("mismatched"),
    )
    rows = files.groupBy("partition").agg(*columns).collect()
    return {row["partition"]: Counted(row["records"], row["first"], row["last"], row["mismatched"]) for row in rows}


def fingerprint(*more: str) -> Column:
    """Return a 64-bit hash of a record's timestamp, key, value and headers, and of the columns named in `more`.

    Null and an empty value have different hashes.
    """
    header = F.transform("headers", lambda each: F.struct(each["key"], each["value"].isNull(), each["value"]))
    nulls = (F.col("key").isNull(), F.col("value").isNull())
    return F.xxhash64(*map(F.col, more), F.unix_millis("timestamp"), *nulls, F.col("key"), F.col("value"), header)


def size() -> Column:
    """Return a column with the total size in bytes of key, value and headers."""
    headers = F.aggregate(
        F.coalesce("headers", F.array()),
        F.lit(0).cast("long"),
        lambda total, each: total + F.octet_length(each["key"]) + F.coalesce(F.octet_length(each["value"]), F.lit(0)),
    )
    lengths = (F.coalesce(F.octet_length(F.col(name)), F.lit(0)) for name in ("key", "value"))
    return sum(lengths, headers)


def batch_size() -> Column:
    """Return a column with the size in bytes of an uncompressed record batch that has only this record."""
    body = BODY_BYTES + sum(
        map(_prefixed, (F.col("key"), F.col("value"))), _varint(F.size(F.coalesce("headers", F.array())))
    )
    headers = F.aggregate(
        F.coalesce("headers", F.array()),
        F.lit(0).cast("long"),
        lambda total, each: total + _prefixed(each["key"]) + _prefixed(each["value"]),
    )
    record = body + headers
    return BATCH_HEADER_BYTES + _varint(record) + record


def _prefixed(content: Column) -> Column:
    """Return the size of a field with its length before it; the length of a null is -1, which takes one byte."""
    length = F.coalesce(F.octet_length(content), F.lit(0))
    return _varint(length) + length


def _varint(number: Column) -> Column:
    """Return the number of bytes of a zigzag varint."""
    limits = (1 << 6, 1 << 13, 1 << 20, 1 << 27)
    return sum(((number >= limit).cast("long") for limit in limits), F.lit(1).cast("long"))


@contextmanager
def cached(frame: DataFrame) -> Iterator[DataFrame]:
    """Cache the rows of a data frame, in memory and on disk, while the `with` block runs."""
    frame.cache()
    try:
        yield frame
    finally:
        frame.unpersist()


@contextmanager
def settings(spark: SparkSession, chosen: Mapping[str, str]) -> Iterator[None]:
    """Change these settings of the Spark session for the `with` block, and restore the old ones afterwards."""
    before = {name: spark.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        with suppress(Py4JNetworkError, ConnectionError):  # Spark has ended, and the cause was reported before.
            for name, old in before.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)
