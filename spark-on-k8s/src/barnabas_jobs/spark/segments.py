"""Queries on the batches of segment files: what each segment holds, and where replicas hold different batches."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

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
