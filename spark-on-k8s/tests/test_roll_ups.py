"""Roll-ups of lag: executors make them, and the driver collects only what the report shows."""

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # As everybody who writes Spark calls it.

from barnabas_jobs.jobs import lag_history
from barnabas_jobs.jobs.lag_history import drawn_hours, group_days, roll_ups, with_group_lags
from barnabas_jobs.planning.lag import GROUPS_DRAWN, TOPICS_DRAWN, Day, Objective

HOUR_MS = 3_600_000
GROUPS, TOPICS, PARTITIONS = GROUPS_DRAWN + 2, TOPICS_DRAWN + 1, 2
HOURS_DRAWN = 10
"""Fewer hours than the job draws."""
HOURS = HOURS_DRAWN + 20
DAYS = -(-HOURS // 24)
COMMITS = (
    "group string, topic string, partition int, commit_ms long, lag long, seconds double, log_partition int, "
    "log_offset long"
)
TOPIC_LAG, GROUP_LAG = 20 * (TOPICS - 1) + 1, sum(20 * topic + 1 for topic in range(TOPICS))


def busy(spark: SparkSession) -> DataFrame:
    """Return one commit each hour for every group and partition; `topic-6` is furthest behind."""

    def digit(below: int, size: int) -> Column:
        return F.floor(F.col("id") / below) % size

    rows = spark.range(GROUPS * TOPICS * PARTITIONS * HOURS)
    topic = digit(PARTITIONS, TOPICS)
    hour = digit(PARTITIONS * TOPICS, HOURS)
    return rows.select(
        F.format_string("group-%02d", digit(PARTITIONS * TOPICS * HOURS, GROUPS)).alias("group"),
        F.format_string("topic-%d", topic).alias("topic"),
        digit(1, PARTITIONS).cast("int").alias("partition"),
        (hour * HOUR_MS).alias("commit_ms"),
        (topic * 10 + digit(1, PARTITIONS)).alias("lag"),
        F.lit(1.5).alias("seconds"),
        (topic * 20 + 1).alias("topic_lag"),
        F.lit(GROUP_LAG).alias("group_lag"),
    )


def test_the_driver_collects_only_what_the_report_shows(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_history, "HOURS_DRAWN", HOURS_DRAWN)
    rolled = roll_ups(busy(spark), Objective(max_records=GROUP_LAG - 1)).persist()
    try:
        assert rolled.count() == GROUPS * TOPICS * PARTITIONS * (HOURS + DAYS)
        days = group_days(rolled)
        assert (len(days), {len(each) for each in days.values()}) == (GROUPS, {DAYS})
        commits = 24 * TOPICS * PARTITIONS
        assert days["group-00"][0] == Day("1970-01-01", commits, GROUP_LAG, 1.5, missed=commits)
        hours = drawn_hours(rolled, [f"group-{number:02}" for number in range(GROUPS_DRAWN)])
    finally:
        rolled.unpersist()
    assert len(hours) == GROUPS_DRAWN * (TOPICS_DRAWN + 1) * HOURS_DRAWN
    assert {row["topic"] for row in hours} == {"", *(f"topic-{number}" for number in range(1, TOPICS))}
    assert min(row["start_ms"] for row in hours) == (HOURS - HOURS_DRAWN) * HOUR_MS
    assert {row["lag_max"] for row in hours if row["topic"] == "topic-6"} == {TOPIC_LAG}
    assert {row["lag_max"] for row in hours if not row["topic"]} == {GROUP_LAG}


def test_the_lag_of_a_group_is_the_sum_over_its_partitions(spark: SparkSession) -> None:
    """At a commit, the last known lag of each other partition counts, as in a ConsumerGroup's objective."""
    commits = [
        ("one", "a", 0, 10, 40, 2.0, 7, 0),
        ("two", "a", 0, 11, 5, 1.0, 7, 1),
        ("one", "b", 1, 12, 30, 3.0, 7, 2),
        ("one", "a", 0, 13, None, None, 7, 3),
        ("one", "a", 1, 14, 9, 1.0, 7, 4),
        ("one", "a", 0, 15, 10, 1.0, 7, 5),
    ]
    history = with_group_lags(spark.createDataFrame(commits, COMMITS)).persist()
    try:
        found = history.where("group = 'one'").orderBy("log_offset").collect()
        assert [row["group_lag"] for row in found] == [40, 70, None, 79, 49]
        assert [row["topic_lag"] for row in found] == [40, 30, None, 49, 19]
        days = group_days(roll_ups(history, Objective(max_records=70)))
    finally:
        history.unpersist()
    assert days == {"one": [Day("1970-01-01", 5, 79, 3.0, 1)], "two": [Day("1970-01-01", 1, 5, 1.0, 0)]}


def test_an_unknown_lag_is_in_no_hour_and_in_no_maximum(spark: SparkSession) -> None:
    commits = [
        ("one", "a", 0, 5, None, None, 7, 0),
        ("one", "a", 1, 6, 7, 2.0, 7, 1),
        ("one", "b", 0, 7, None, None, 7, 2),
    ]
    rolled = roll_ups(with_group_lags(spark.createDataFrame(commits, COMMITS)), Objective())
    assert {tuple(row) for row in drawn_hours(rolled, ["one"])} == {("one", "", 0, 7), ("one", "a", 0, 7)}
    assert group_days(rolled) == {"one": [Day("1970-01-01", 3, 7, 2.0, 0)]}
