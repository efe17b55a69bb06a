"""Records as data frames, with the columns of Spark's Kafka connector: of a topic, and of the files of an archive."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As everybody who writes Spark calls it.

from barnabas_jobs.planning.ranges import OffsetRange

SCHEMA: Final = (
    "partition int, offset long, timestamp timestamp, timestampType int, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)
COLUMNS: Final = ("partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
DAY_MS: Final = 86_400_000


def of_topic(spark: SparkSession, bootstrap: str, topic: str, ranges: Sequence[OffsetRange]) -> DataFrame:
    """The committed records of these ranges. Spark fails where one of them is gone when it reads."""
    if not ranges:
        return spark.createDataFrame([], SCHEMA)
    chosen = {
        "kafka.bootstrap.servers": bootstrap,
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({topic: [each.partition for each in ranges]}),
        "startingOffsets": json.dumps({topic: {str(each.partition): each.start for each in ranges}}),
        "endingOffsets": json.dumps({topic: {str(each.partition): each.end for each in ranges}}),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return spark.read.format("kafka").options(**chosen).load().select(*COLUMNS)


def of_files(spark: SparkSession, data: Path, paths: Sequence[str]) -> DataFrame:
    """The records of Parquet files under the folder `data` of an archive."""
    if not paths:
        return spark.createDataFrame([], SCHEMA)
    return spark.read.schema(SCHEMA).option("basePath", str(data)).parquet(*paths).select(*COLUMNS)


def in_ranges(records: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Those whose offsets are in the range of their partition."""
    wanted = F.lit(False)
    for each in ranges:
        inside = (F.col("offset") >= each.start) & (F.col("offset") < each.end)
        wanted = wanted | ((F.col("partition") == each.partition) & inside)
    return records.where(wanted)


def write_parquet(records: DataFrame, folder: Path) -> None:
    """One folder a day (UTC) and partition, each file in the order of offsets, timestamps of Parquet's own kind."""
    day = F.date_add(F.lit("1970-01-01").cast("date"), F.floor(F.unix_millis("timestamp") / DAY_MS).cast("int"))
    ordered = records.withColumn("date", day).sortWithinPartitions("date", "partition", "offset")
    with settings(records.sparkSession, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        ordered.write.partitionBy("date", "partition").option("compression", "zstd").parquet(str(folder))


def counts(records: DataFrame) -> dict[int, tuple[int, int, int]]:
    """By partition: how many records, the first and the last offset."""
    columns = (F.count("*").alias("records"), F.min("offset").alias("first"), F.max("offset").alias("last"))
    rows = records.groupBy("partition").agg(*columns).collect()
    return {row["partition"]: (row["records"], row["first"], row["last"]) for row in rows}


def fingerprint(*more: str) -> Column:
    """64 bits of all that a record holds, and of these columns; a null is not the same as nothing."""
    header = F.transform("headers", lambda each: F.struct(each["key"], each["value"].isNull(), each["value"]))
    nulls = (F.col("key").isNull(), F.col("value").isNull())
    return F.xxhash64(*map(F.col, more), F.unix_millis("timestamp"), *nulls, F.col("key"), F.col("value"), header)


def size() -> Column:
    """Bytes of key, value and headers."""
    headers = F.aggregate(
        F.coalesce("headers", F.array()),
        F.lit(0).cast("long"),
        lambda total, each: total + F.octet_length(each["key"]) + F.coalesce(F.octet_length(each["value"]), F.lit(0)),
    )
    lengths = (F.coalesce(F.octet_length(F.col(name)), F.lit(0)) for name in ("key", "value"))
    return sum(lengths, headers)


@contextmanager
def settings(spark: SparkSession, chosen: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, and as it was afterwards: it may be that of a notebook."""
    before = {name: spark.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
