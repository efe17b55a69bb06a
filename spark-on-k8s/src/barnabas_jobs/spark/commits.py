"""Records of `__consumer_offsets` as data frames: commits, the last commit of each group, and lag by hour and day."""

from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812  # Spark's documentation uses this name.

from barnabas_jobs.planning.lag.offset_records import COMMIT, TOMBSTONE, OffsetRecord, decode
from barnabas_jobs.planning.lag.report import DAY, HOUR, HOURS_DRAWN, TOPICS_DRAWN, Objective

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


def committed_names(records: DataFrame, column: str, wanted: Sequence[str]) -> list[str]:
    """Return names of groups or topics with commits or tombstones: those in `wanted`, and up to NAMES_MAX others.

    If a name in `wanted` is missing, an error message lists the others. If `wanted` is empty, return an empty list.
    """
    if not wanted:
        return []
    names = chosen(records, [], []).select(column).distinct()
    is_wanted = F.col(column).isin(list(wanted))
    few = names.where(~is_wanted).orderBy(column).limit(NAMES_MAX)
    return [row[0] for row in names.where(is_wanted).unionByName(few).collect()]


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


def group_days(rolled: DataFrame) -> list[Row]:
    """Collect a row for each group and day from the rows of its partitions; ignore rows of other periods."""
    sums = (
        F.sum("commits").alias("commits"),
        F.max("group_lag_max").alias("lag_max"),
        F.max("seconds_max").alias("seconds_max"),
        F.sum("missed").alias("missed"),
    )
    return rolled.where(F.col("period") == DAY).groupBy("group", "start_ms").agg(*sums).collect()


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
