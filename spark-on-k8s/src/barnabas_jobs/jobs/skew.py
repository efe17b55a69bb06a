"""`skew`: report how evenly topics are spread over brokers, log dirs, partitions and keys, and plan a rebalance."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_core.topic_partition import TopicPartition
from barnabas_jobs.jobs.location import Report, report_at
from barnabas_jobs.jobs.topics_in_turn import read_in_turn, records_of
from barnabas_jobs.kafka.placement import placement_of
from barnabas_jobs.kafka.topics import Cluster, Topic
from barnabas_jobs.planning.archived import OffsetRange
from barnabas_jobs.planning.options import Bootstrap, Count, Folder, JobOptions, JobResult, TopicName
from barnabas_jobs.planning.page import Unread, about
from barnabas_jobs.planning.rebalance_plan import (
    BrokerLoad,
    LogDirLoad,
    Placement,
    Plan,
    bounded_json,
    broker_loads,
    log_dir_loads,
    plan_rebalance,
    reassignment_json,
)
from barnabas_jobs.planning.skew_report import (
    Evenness,
    KeyLoad,
    PartitionLoad,
    TopicSkew,
    balance,
    evenness,
    key_text,
    rate,
    skew_page,
)
from barnabas_jobs.spark.failures import spark_failures
from barnabas_jobs.spark.records import cached, of_topic, reading, size
from barnabas_jobs.spark.status import phase

PARTITIONS = (
    "topic string, partition int, records long, bytes long, keys long, first_ms long, last_ms long, "
    "records_per_s double"
)
KEYS = "topic string, key string, partition int, records long, bytes long, share double"
BROKERS = "broker int, rack string, replicas int, leaders int, bytes long, bytes_after long, records_per_s double"
LOG_DIRS = "broker int, log_dir string, replicas int, bytes long, bytes_after long, usable_bytes long, total_bytes long"
PLAN_BYTES_MAX: Final = 2560
"""The maximum size of `Result.plan` in bytes, because the whole result must fit into a termination message of 4,096
bytes."""


class Options(JobOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of `skew`.

    `topics` defaults to all but the internal ones. `report` is a folder that does not exist yet. `top` is the number
    of the hottest keys in the report, for each topic. `moves` bounds the number of replicas that the plan moves.
    """

    bootstrap: Bootstrap
    report: Folder
    topics: list[TopicName] | None = None
    top: Count = 20
    moves: Count = 50


class Result(JobResult, frozen=True, kw_only=True):
    """The result of the job; the job also writes it to the report as JSON.

    plan.json has the whole plan, with `planned_partitions` partitions. `plan` is the text of a shorter file with only
    the first `plan_partitions` of these. `unread` lists topics that could not be read. For brokers and log dirs, the
    replicas and bytes are those of all topics, but `records_per_s` counts only topics that were read.
    """

    report: str
    records: int
    bytes: int
    broker_largest_over_mean: Evenness
    planned_partitions: int
    planned_bytes: int
    plan_partitions: int
    plan: str
    brokers: list[BrokerLoad]
    log_dirs: list[LogDirLoad]
    topics: list[TopicSkew]
    unread: list[Unread]


def run(spark: SparkSession, options: Options, clock: Callable[[], float] = time.time) -> Result:
    """Read all records of the topics once, and write the report.

    Raises JobFailed if a named topic is missing, if no topic can be read, or if the report cannot be written. If only
    some topics cannot be read, the report lists them in `unread`.
    """
    cluster = Cluster(options.bootstrap)
    found = placement_of(options.bootstrap)
    now_ms = int(clock() * 1000)
    names = options.topics or sorted(found.topic_ids.keys() - found.internal)
    for name in options.topics or ():
        cluster.topic(name)  # The call raises JobFailed if the topic is missing.
    total = records_of(cluster, names)
    with report_at(spark, options.report) as report:

        def read(topic: Topic, ranges: Sequence[OffsetRange]) -> TopicSkew:
            records = of_topic(spark, cluster.bootstrap, topic.name, ranges, counted=True)
            return _topic(records, topic, options.top, total, now_ms)

        topics, unread = read_in_turn(cluster, names, read)
        plan = plan_rebalance(found, options.moves)
        result = _result(options, topics, unread, found, plan)
        with spark_failures(f"writing report={options.report}"):
            _add_tables(report, result)
        (report.folder / "plan.json").write_bytes(reassignment_json(found, plan.partitions))
        page = skew_page(
            about(now_ms, options.bootstrap), topics, result.brokers, result.log_dirs, plan.partitions, unread
        )
        report.add_result("skew", result, page)
    return result


def _result(options: Options, topics: list[TopicSkew], unread: list[Unread], found: Placement, plan: Plan) -> Result:
    rates = {
        TopicPartition(topic.topic, each.partition): each.records_per_s or 0.0
        for topic in topics
        for each in topic.partitions
    }
    brokers = broker_loads(found, plan.dirs, rates)
    text, fitting = bounded_json(found, plan.partitions, PLAN_BYTES_MAX)
    return Result(
        report=options.report,
        records=sum(topic.records for topic in topics),
        bytes=sum(topic.bytes for topic in topics),
        broker_largest_over_mean=evenness(brokers),
        planned_partitions=len(plan.partitions),
        planned_bytes=plan.moved_bytes,
        plan_partitions=fitting,
        plan=text,
        brokers=brokers,
        log_dirs=log_dir_loads(found, plan.dirs),
        topics=topics,
        unread=unread,
    )


def _topic(records: DataFrame, topic: Topic, top: int, total: int, now_ms: int) -> TopicSkew:
    """Return the skew of one topic.

    `total` is the number of offsets in all topics, which is needed to report the progress.
    """
    name, spark = topic.name, records.sparkSession
    with reading(spark, name), spark_failures(f"reading {name}"), cached(_by_key(records)) as by_key:
        with phase(spark, "reading", total):  # Later phases read the cached rows.
            partitions = _partitions(by_key, topic, now_ms)
        found = sum(each.records for each in partitions)
        keys = _hot_keys(by_key, top, found)
    return TopicSkew(
        topic=name,
        records=found,
        bytes=sum(each.bytes for each in partitions),
        largest_over_mean=balance(partitions),
        partitions=partitions,
        hot_keys=keys,
    )


def _add_tables(report: Report, result: Result) -> None:
    row, topics = msgspec.structs.astuple, result.topics
    report.add_table(
        "partitions", PARTITIONS, ((each.topic, *row(part)) for each in topics for part in each.partitions)
    )
    report.add_table("keys", KEYS, ((each.topic, *row(key)) for each in topics for key in each.hot_keys))
    report.add_table("brokers", BROKERS, map(row, result.brokers))
    report.add_table("log_dirs", LOG_DIRS, map(row, result.log_dirs))


def _by_key(records: DataFrame) -> DataFrame:
    time_ms = F.unix_millis("timestamp")
    return records.groupBy("partition", "key").agg(
        F.count("*").alias("records"),
        F.sum(size()).alias("bytes"),
        F.min(time_ms).alias("first_ms"),
        F.max(time_ms).alias("last_ms"),
    )


def _partitions(by_key: DataFrame, topic: Topic, now_ms: int) -> list[PartitionLoad]:
    """Return the load of each partition of the topic, also of empty ones."""
    rows = by_key.groupBy("partition").agg(
        F.sum("records").alias("records"),
        F.sum("bytes").alias("bytes"),
        F.count("key").alias("keys"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    )
    found = {
        row["partition"]: PartitionLoad(**row.asDict(), records_per_s=rate(row["records"], row["first_ms"], now_ms))
        for row in rows.collect()
    }
    return [found.get(part) or PartitionLoad(partition=part) for part in topic.partitions]


def _hot_keys(by_key: DataFrame, top: int, total: int) -> list[KeyLoad]:
    """Return the `top` keys with the most records; a key in two partitions counts as two keys."""
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
