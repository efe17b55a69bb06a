"""The job `lag-history`: a real group's commits, with the lag that the lag exporter saw after each."""

import json
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Producer, TopicPartition
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import lag_history
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.spark.status import SparkStatus
from harness.deadline import PATIENCE_S
from harness.running_exporter import RunningExporter

Seen = tuple[int, int, float]
"""Partition, committed offset, and the lag that the exporter showed."""


class Watched:
    """A group that commits by hand, and the exporter's lag after each commit."""

    def __init__(self, world: World, exporter: RunningExporter) -> None:
        self.group = f"readers-{world.topic}"
        self._world = world
        self._exporter = exporter
        self.seen: list[Seen] = []

    def commit(self, partition: int, offset: int, lag: int) -> None:
        """Commit, and return when the exporter shows this lag."""
        self._world.client.commit(self.group, TopicPartition(self._world.topic, partition, offset))
        labels = {"consumergroup": self.group, "topic": self._world.topic, "partition": str(partition)}
        self._exporter.wait_for_value("kafka_consumergroup_current_offset", offset, PATIENCE_S, **labels)
        self._exporter.wait_for_value("kafka_consumergroup_lag", lag, PATIENCE_S, **labels)
        self.seen.append((partition, offset, lag))

    def commit_unwatched(self, partition: int, offset: int) -> None:
        self._world.client.commit(self.group, TopicPartition(self._world.topic, partition, offset))


@pytest.mark.slow
def test_lag_history_has_the_same_lag_as_the_lag_exporter(spark: SparkSession, world: World, tmp_path: Path) -> None:
    world.make(2)
    exporter = RunningExporter(world.bootstrap, tmp_path).start()
    group = Watched(world, exporter)
    world.client.write(world.topic, [b"one"] * 60, 0)
    world.client.write(world.topic, [b"one"] * 40, 1)
    group.commit(0, 20, 40)
    group.commit(1, 40, 0)
    world.client.write(world.topic, [b"two"] * 30, 0)
    group.commit(0, 50, 40)
    group.commit(0, 90, 0)
    world.client.write(world.topic, [b"three"] * 5, 1)
    exporter.process.close()
    report = tmp_path / "report"
    options = lag_history.Options(
        bootstrap=world.bootstrap, report=str(report), groups=[group.group], max_records=39, max_seconds=3600
    )
    result = lag_history.run(spark, options)
    rows = spark.read.parquet(str(report / "history.parquet")).orderBy("commit_ms").collect()
    assert [(row["partition"], row["committed"], row["lag"]) for row in rows] == group.seen
    (told,) = result.groups
    assert (told.commits, told.lag_max, told.lag_now, told.missed, told.kept) == (4, 40, 5, 3, False)
    assert [(each.partition, each.committed, each.lag) for each in result.now] == [(0, 90, 0), (1, 40, 5)]
    assert not result.fine
    assert result.records["commit"] >= 4
    hours = spark.read.parquet(str(report / "rollups.parquet")).where("period = 'day' AND partition = 0").collect()
    assert sum(row["commits"] for row in hours) == 3
    assert (min(row["lag_min"] for row in hours), max(row["lag_max"] for row in hours)) == (0, 40)
    assert json.loads((report / "lag-history.json").read_bytes())["groups"][0]["group"] == group.group
    page = (report / "lag-history.html").read_text(encoding="utf-8")
    assert "http" not in page
    assert f"{group.group}: largest lag by hour" in page
    world.archive(spark, topic="__consumer_offsets")
    group.commit_unwatched(1, 45)
    archived = msgspec.structs.replace(options, report=str(tmp_path / "later"), archive=str(world.folder))
    later = lag_history.run(spark, archived)
    (told_later,) = later.groups
    assert (told_later.commits, told_later.lag_max, told_later.lag_now, told_later.missed) == (5, 40, 0, 3)
    assert [(each.partition, each.committed, each.lag) for each in later.now] == [(0, 90, 0), (1, 45, 0)]


def test_commits_of_aborted_and_open_transactions_are_left_out(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make(1)
    world.client.write(world.topic, [b"one"] * 10)
    reader = world.client.consumer(f"copiers-{world.topic}")
    # The coordinator must not end the open transaction, however busy the machine is.
    long = {"transaction.timeout.ms": 900_000}
    writer = Producer({**world.client.settings, **long, "transactional.id": world.topic})
    writer.init_transactions(PATIENCE_S)
    for offset, commits in ((4, True), (6, False), (7, True), (9, None)):
        writer.begin_transaction()
        offsets = [TopicPartition(world.topic, 0, offset)]
        writer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), PATIENCE_S)
        if commits is not None:
            (writer.commit_transaction if commits else writer.abort_transaction)(PATIENCE_S)
    report = tmp_path / "report"
    options = lag_history.Options(bootstrap=world.bootstrap, report=str(report), topics=[world.topic])
    result = lag_history.run(spark, options)
    rows = spark.read.parquet(str(report / "history.parquet")).orderBy("commit_ms").collect()
    assert [(row["committed"], row["lag"]) for row in rows] == [(4, 6), (7, 3)]
    assert [(each.committed, each.lag) for each in result.now] == [(7, 3)]
    # An open transaction would hide the commits of the tests that come next.
    writer.abort_transaction(PATIENCE_S)
    reader.close()


@pytest.mark.parametrize("option", ["groups", "topics"])
def test_lag_history_refuses_a_group_or_topic_without_commits(
    spark: SparkSession, world: World, tmp_path: Path, option: str
) -> None:
    """A misspelt name would otherwise meet every objective."""
    world.make(1)
    world.client.write(world.topic, [b"one"])
    world.client.commit("a-group", TopicPartition(world.topic, 0, 1))
    named = {"groups": ["a-group"], "topics": [world.topic], option: ["nobody"]}
    given = {"bootstrap": world.bootstrap, "report": str(tmp_path / "report"), **named}
    options = msgspec.convert(given, lag_history.Options)
    told = f"^{option}=nobody: __consumer_offsets has no commits for these {option}; others with commits: .*"
    with pytest.raises(JobFailed, match=told):
        lag_history.run(spark, options)
    assert list(tmp_path.iterdir()) == []


def test_a_group_without_commits_for_the_topic_has_an_empty_history(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    for topic, group in ((world.topic, "one"), (f"{world.topic}-other", "other")):
        world.make(1, topic=topic)
        world.client.write(topic, [b"one"])
        world.client.commit(group, TopicPartition(topic, 0, 1))
    options = lag_history.Options(
        bootstrap=world.bootstrap, report=str(tmp_path / "report"), groups=["one"], topics=[f"{world.topic}-other"]
    )
    result = lag_history.run(spark, options)
    assert (result.groups, result.now, result.commits, result.fine) == ([], [], 0, True)
    seen = SparkStatus(spark).seen()
    assert seen.phase == "reading commits"
    assert seen.records.total is not None
    assert 0 < seen.records.done <= seen.records.total
    assert (tmp_path / "report" / "lag-history.html").exists()


def test_lag_history_refuses_an_archive_without_the_commits_of_groups(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    world.make(1)
    world.write(3, 1)
    world.archive(spark)
    options = lag_history.Options(bootstrap=world.bootstrap, report=str(tmp_path / "report"), archive=str(world.folder))
    with pytest.raises(JobFailed, match="there is no archive of the topic '__consumer_offsets'; run `archive` first"):
        lag_history.run(spark, options)
    assert not (tmp_path / "report").exists()
