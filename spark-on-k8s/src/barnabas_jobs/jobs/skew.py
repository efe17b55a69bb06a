"""`skew`: how evenly a topic is spread over partitions and keys; JSON, Parquet and one HTML page."""

from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As everybody who writes Spark calls it.

from barnabas_jobs.files.report_folder import new_report
from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.planning.options import Bootstrap, Count, Folder, TopicName
from barnabas_jobs.planning.ranges import pending
from barnabas_jobs.planning.skew_report import Balance, KeyLoad, PartitionLoad, balance, key_text, skew_page
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import of_topic, size

PARTITIONS = "partition int, records long, bytes long, keys long, first_ms long, last_ms long"
KEYS = "key string, partition int, records long, bytes long, share double"


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `skew` takes: `report` is a folder that is not there yet, `top` how many keys it names."""

    bootstrap: Bootstrap
    topic: TopicName
    report: Folder
    top: Count = 20


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The report's JSON."""

    topic: str
    report: str
    records: int
    bytes: int
    largest_over_mean: Balance
    partitions: list[PartitionLoad]
    hot_keys: list[KeyLoad]

    @property
    def fine(self) -> bool:
        """Skew is told, and judged by who reads it."""
        return True


def run(spark: SparkSession, options: Options) -> Result:
    """Reads all of the topic once. Raises JobFailed."""
    cluster = Cluster(options.bootstrap)
    topic = cluster.topic(options.topic)
    records = of_topic(spark, options.bootstrap, topic.name, pending({}, cluster.bounds(topic)))
    with new_report(options.report) as folder, spark_failures(f"reading {topic.name}"):
        by_key = _by_key(records).cache()
        try:
            partitions = _partitions(by_key, topic)
            total = sum(each.records for each in partitions)
            keys = _hot_keys(by_key, options.top, total)
        finally:
            by_key.unpersist()
        result = Result(
            topic=topic.name,
            report=options.report,
            records=total,
            bytes=sum(each.bytes for each in partitions),
            largest_over_mean=balance(partitions),
            partitions=partitions,
            hot_keys=keys,
        )
        _parquet(spark, partitions, PARTITIONS, str(folder / "partitions.parquet"))
        _parquet(spark, keys, KEYS, str(folder / "keys.parquet"))
        (folder / "skew.json").write_bytes(msgspec.json.format(msgspec.json.encode(result)))
        (folder / "skew.html").write_text(skew_page(topic.name, partitions, keys), encoding="utf-8")
    return result


def _by_key(records: DataFrame) -> DataFrame:
    time = F.unix_millis("timestamp")
    return records.groupBy("partition", "key").agg(
        F.count("*").alias("records"),
        F.sum(size()).alias("bytes"),
        F.min(time).alias("first_ms"),
        F.max(time).alias("last_ms"),
    )


def _partitions(by_key: DataFrame, topic: Topic) -> list[PartitionLoad]:
    """All partitions of the topic, also those that hold nothing."""
    rows = by_key.groupBy("partition").agg(
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.count("key").alias("keys"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    )
    found = {row["partition"]: PartitionLoad(**row.asDict()) for row in rows.collect()}
    return [found.get(part) or PartitionLoad(partition=part) for part in topic.partitions]


def _hot_keys(by_key: DataFrame, top: int, total: int) -> list[KeyLoad]:
    """Those with most records; a key that is in two partitions, as after some were added, is told of each."""
    rows = by_key.orderBy(F.desc("records"), "partition", "key").limit(top).collect()
    return [
        KeyLoad(
            key=key_text(None if row["key"] is None else bytes(row["key"])),
            partition=row["partition"],
            records=row["records"],
            bytes=row["bytes"],
            share=row["records"] / total,
        )
        for row in rows
    ]


def _parquet(spark: SparkSession, rows: list[Any], schema: str, path: str) -> None:
    spark.createDataFrame([msgspec.structs.astuple(row) for row in rows], schema).coalesce(1).write.parquet(path)
