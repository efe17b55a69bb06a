"""Topics with transactions, of Barnabas and of Apache Kafka: aborted records and markers leave gaps in offsets."""

from pathlib import Path

import pytest
from confluent_kafka import Producer
from jobs_world import World
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import skew
from barnabas_jobs.kafka.topics import Cluster
from barnabas_jobs.planning.archived import Bounds
from harness.apache_kafka import apache_kafka
from harness.deadline import PATIENCE_S
from harness.kafka_jars import JarsMissing, jars_folder
from harness.require import missing


def transaction(world: World, name: str, values: list[bytes], *, commits: bool | None) -> Producer:
    """Write these values to partition 0 in a transaction; with `commits=None` it stays open."""
    producer = Producer({**world.client.settings, "transactional.id": name, "transaction.timeout.ms": 600_000})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for value in values:
        producer.produce(world.topic, value, partition=0)
    producer.flush(PATIENCE_S)
    if commits is not None:
        (producer.commit_transaction if commits else producer.abort_transaction)(PATIENCE_S)
    return producer


def values_of_spark(spark: SparkSession, world: World) -> list[bytes]:
    """Return what Spark's source reads with `read_committed`, without our jobs."""
    options = {
        "kafka.bootstrap.servers": world.bootstrap,
        "kafka.isolation.level": "read_committed",
        "subscribe": world.topic,
        "startingOffsets": "earliest",
    }
    rows = spark.read.format("kafka").options(**options).load().orderBy("offset").collect()
    return [bytes(row["value"]) for row in rows]


def check_new_topics(cluster: Cluster) -> None:
    """Check that creating a topic waits until all brokers know it: Apache Kafka answers before."""
    for number in range(20):
        cluster.create_topic(f"new-{number}", 2, {})
        found = cluster.topic(f"new-{number}")
        assert found.leaderless == ()
        assert cluster.bounds(found) == {0: Bounds(0, 0), 1: Bounds(0, 0)}


def test_archive_keeps_committed_records_and_counts_the_offsets_left_out(spark: SparkSession, world: World) -> None:
    world.make(1)
    transaction(world, f"{world.topic}-one", [b"a", b"b"], commits=True)
    transaction(world, f"{world.topic}-two", [b"no"] * 20, commits=False)
    still_open = transaction(world, f"{world.topic}-three", [b"open"], commits=None)
    world.client.write(world.topic, [b"behind"])
    result = world.archive(spark)
    assert (result.records, result.left_out) == (2, 1 + 20 + 1)
    assert values_of_spark(spark, world) == [b"a", b"b"], "Spark's own source must read the same records"
    still_open.abort_transaction(PATIENCE_S)
    result = world.archive(spark)
    assert (result.records, result.left_out) == (1, 2)
    assert [record[4] for record in world.archived(spark)] == [b"a", b"b", b"behind"]
    assert world.verify(spark).fine


@pytest.mark.soak(only=True)
@pytest.mark.timeout(600)
def test_archive_keeps_only_committed_records_of_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    try:
        jars_folder()
    except JarsMissing as reason:
        missing(reason)
    with apache_kafka(tmp_path / "kafka", heap="512M") as server:
        check_new_topics(Cluster(server.bootstrap))
        world = World(server.bootstrap, "transactions", tmp_path / "archive")
        world.make(2)
        transaction(world, "one", [b"a", b"b"], commits=True)
        transaction(world, "two", [b"no"] * 20, commits=False)
        transaction(world, "three", [b"c"], commits=True)
        still_open = transaction(world, "four", [b"d"], commits=None)
        world.client.write(world.topic, [b"e"])
        assert world.archive(spark, commit_records=3).records == 3
        assert world.archive(spark).commits == 0
        still_open.commit_transaction(PATIENCE_S)
        result = world.archive(spark)
        assert (result.records, result.swept_runs) == (2, 0)
        assert [record[4] for record in world.archived(spark)] == [b"a", b"b", b"c", b"d", b"e"]
        assert world.verify(spark).fine
        report = skew.Options(bootstrap=world.bootstrap, topics=[world.topic], report=str(tmp_path / "skew"))
        assert skew.run(spark, report).records == 5, "reports have another reader than archives"
        assert world.archive(spark, delete_archived=True).deleted_before[0] == world.client.ends(world.topic)[1]
