"""`skew` on three real brokers, one with all replicas: its plan makes them even, and no record is lost."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka.admin import NewTopic
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from barnabas_jobs.jobs import skew
from barnabas_jobs.kafka.placement import placement_of
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.rebalance_plan import Reassignment, dir_bytes
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import StockClient

PARTITIONS = 6
RECORDS = 8
RECORD_BYTES = 1 << 16


@pytest.mark.slow
def test_the_plan_makes_brokers_and_log_dirs_even(spark: SparkSession, tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path / "cluster", brokers=3, log_dirs=2) as cluster:
        client = StockClient(cluster.bootstrap)
        written = fill(client)
        report = tmp_path / "report"
        result = skew.run(spark, skew.Options(bootstrap=cluster.bootstrap, report=str(report)))
        assert [topic.topic for topic in result.topics] == ["skewed"]
        assert result.records == PARTITIONS * RECORDS
        assert result.broker_largest_over_mean.now > 2.9
        assert result.broker_largest_over_mean.after < 1.1
        assert json.loads(result.plan) == json.loads((report / "plan.json").read_bytes())
        assert {row["broker"] for row in spark.read.parquet(str(report / "brokers.parquet")).collect()} == {0, 1, 2}
        assert spark.read.parquet(str(report / "log_dirs.parquet")).count() == 6

        carry_out(cluster, msgspec.json.decode(result.plan, type=Reassignment))
        wait_for(lambda: brokers_bytes(cluster), lambda found: max(found) * 3 < 1.2 * sum(found))
        assert {partition: client.read("skewed", partition) for partition in written} == written
        again = skew.run(spark, skew.Options(bootstrap=cluster.bootstrap, report=str(tmp_path / "again")))
        assert again.planned_partitions == 0
        planned = {(each.broker, each.log_dir): each.bytes_after for each in result.log_dirs}
        assert {(each.broker, each.log_dir): each.bytes for each in again.log_dirs} == pytest.approx(planned, rel=0.05)


def fill(client: StockClient) -> dict[int, list[bytes]]:
    """Make a topic on broker 0 alone; return the values written to each partition."""
    new = NewTopic("skewed", PARTITIONS, replica_assignment=[[0]] * PARTITIONS)
    client.admin.create_topics([new])["skewed"].result(PATIENCE_S)
    written = {number: [os.urandom(RECORD_BYTES) for _ in range(RECORDS)] for number in range(PARTITIONS)}
    for number, values in written.items():
        client.write("skewed", values, number)
    return written


def carry_out(cluster: BarnabasCluster, plan: Reassignment) -> None:
    """Do what kafka-reassign-partitions does: first set the log dirs, then the replicas."""
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    try:
        admin.alter_replica_log_dirs(
            {
                (each.topic, each.partition, broker): path
                for each in plan.partitions
                for broker, path in zip(each.replicas, each.log_dirs or (), strict=False)
                if path != "any"
            }
        )
        wanted = {TopicPartition(each.topic, each.partition): list(each.replicas) for each in plan.partitions}
        refused = {where: error for where, error in admin.alter_partition_reassignments(wanted).items() if error}
        assert refused == {}
        wait_for(lambda: not admin.list_partition_reassignments())
    finally:
        admin.close()


def brokers_bytes(cluster: BarnabasCluster) -> list[int]:
    """Return the bytes in the log dirs of each broker."""
    found = placement_of(cluster.bootstrap)
    return [sum(size for each, size in dir_bytes(found).items() if each.broker == broker) for broker in range(3)]


def test_skew_fails_with_the_bootstrap_address_if_no_broker_answers() -> None:
    with pytest.raises(
        JobFailed, match=r"bootstrap=127\.0\.0\.1:1: brokers do not report the replicas in their log dirs"
    ):
        placement_of("127.0.0.1:1", timeout_ms=500)
