"""`retention-audit`: compare the declared retention of topics with the records that they hold.

The report also says what another `retention.ms` would delete.
"""

import time
from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_jobs.jobs.location import report_at
from barnabas_jobs.jobs.topics_in_turn import read_in_turn, records_of
from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.planning.archived import OffsetRange
from barnabas_jobs.planning.options import Bootstrap, Folder, JobOptions, JobResult, TopicName, summed
from barnabas_jobs.planning.page import Unread, about
from barnabas_jobs.planning.skew_report import (
    AGES,
    Declared,
    PartitionAges,
    TopicRetention,
    declared,
    findings_of,
    retention_page,
    wrong_ages,
)
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import of_topic, reading, size
from barnabas_jobs.spark.status import phase

Ahead = Annotated[int, msgspec.Meta(ge=1)]
SCHEMA = (
    "topic string, partition int, records long, bytes long, oldest_ms long, newest_ms long, bytes_by_age array<long>, "
    "would_go_records long, would_go_bytes long, findings array<string>"
)


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `retention-audit`.

    `retention_ms` is a possible value of `retention.ms`; the report says how much would be deleted with this value.
    """

    bootstrap: Bootstrap
    topics: list[TopicName]
    report: Folder
    retention_ms: Ahead | None = None


class Result(JobResult, frozen=True, kw_only=True):
    """The result of the retention audit; the job also writes it to the report as JSON."""

    report: str
    audited_at_ms: int
    ages: list[str]
    findings: list[str]
    topics: list[TopicRetention]
    unread: list[Unread]

    @property
    def fine(self) -> bool:
        """True if all topics that still exist were read, and no partition has records that are too old or too new."""
        return not self.findings

    @property
    def summary(self) -> str:
        """The number of topics that were read, and the first problem, if any was found."""
        return summed(f"{len(self.topics):,} topics were read", self.findings)


def run(spark: SparkSession, options: Options, clock: Callable[[], float] = time.time) -> Result:
    """Read all records of the topics once, and write the report.

    Raises JobFailed if a named topic is missing, if no topic can be read, or if the report cannot be written. If only
    some topics cannot be read, the report lists them in `unread`.
    """
    cluster = Cluster(options.bootstrap)
    now_ms = int(clock() * 1000)
    for name in options.topics:
        cluster.topic(name)  # The call raises JobFailed if the topic is missing.
    total = records_of(cluster, options.topics)
    with report_at(spark, options.report) as report:

        def read(topic: Topic, ranges: Sequence[OffsetRange]) -> TopicRetention:
            kept = declared(cluster.config(topic.name))
            records = of_topic(spark, cluster.bootstrap, topic.name, ranges, counted=True)
            with phase(spark, "reading", total):
                return _audit(records, topic, kept, options, now_ms)

        topics, unread = read_in_turn(cluster, options.topics, read)
        ages = [name for name, _ in AGES]
        result = Result(
            report=options.report,
            audited_at_ms=now_ms,
            ages=ages,
            findings=findings_of(topics, unread),
            topics=topics,
            unread=unread,
        )
        rows = [(topic.topic, *msgspec.structs.astuple(each)) for topic in topics for each in topic.partitions]
        with spark_failures(f"writing report={options.report}"):
            report.add_table("partitions", SCHEMA, rows)
        page = retention_page(about(now_ms, options.bootstrap), topics, options.retention_ms, unread)
        report.add_result("retention", result, page)
    return result


def _audit(records: DataFrame, topic: Topic, kept: Declared, options: Options, now_ms: int) -> TopicRetention:
    with reading(records.sparkSession, topic.name), spark_failures(f"reading {topic.name}"):
        rows = _by_partition(records, options.retention_ms, now_ms).collect()
    found = {
        row["partition"]: PartitionAges(
            **row.asDict(), findings=wrong_ages(row["oldest_ms"], row["newest_ms"], kept, now_ms)
        )
        for row in rows
    }
    partitions = [found.get(part) or PartitionAges(partition=part) for part in topic.partitions]
    return TopicRetention(topic=topic.name, declared=kept, partitions=partitions)


def _by_partition(records: DataFrame, what_if_ms: int | None, now_ms: int) -> DataFrame:
    """Return the figures of `PartitionAges` for each partition that has records."""
    any_ms = F.unix_millis("timestamp")
    time_ms = F.when(any_ms >= 0, any_ms)  # Brokers ignore timestamps before 1970, too.
    age = _age(now_ms - time_ms)
    would_go = F.lit(False) if what_if_ms is None else F.col("time_ms") < now_ms - what_if_ms

    def bytes_if(condition: Column) -> Column:
        return F.sum(F.when(condition, F.col("size")).otherwise(0))

    sized = records.select("partition", time_ms.alias("time_ms"), age.alias("age"), size().alias("size"))
    return sized.groupBy("partition").agg(
        F.count("*").alias("records"),
        F.sum("size").alias("bytes"),
        F.min("time_ms").alias("oldest_ms"),
        F.max("time_ms").alias("newest_ms"),
        F.array(*(bytes_if(F.col("age") == index) for index in range(len(AGES)))).alias("bytes_by_age"),
        F.count(F.when(would_go, 1)).alias("would_go_records"),
        bytes_if(would_go).alias("would_go_bytes"),
    )


def _age(age_ms: Column) -> Column:
    """Return the index in AGES of the range that contains the age; a record without a timestamp is in the last one."""
    found = F.lit(len(AGES) - 1)
    for index, (_, bound_ms) in reversed(list(enumerate(AGES[:-1]))):
        found = F.when(age_ms < bound_ms, index).otherwise(found)
    return found
