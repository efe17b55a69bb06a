"""Deleted records do not return after a failover."""

from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from harness.cluster import barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for

TOPIC, RECORDS, KEPT_FROM = "flights", 10, 6


def test_deleted_records_do_not_return_when_the_leader_is_killed(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path) as cluster:
        cluster.create_topic(TOPIC, 1, 3)
        cluster.wait_until_full(TOPIC)
        client = cluster.client()
        client.write(TOPIC, [b"%d" % number for number in range(RECORDS)])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        deleted = admin.delete_records([TopicPartition(TOPIC, 0, KEPT_FROM)], operation_timeout=PATIENCE_S)
        assert [future.result(PATIENCE_S).low_watermark for future in deleted.values()] == [KEPT_FROM]
        leader = cluster.leader(TOPIC)
        cluster.kill(leader)
        wait_for(lambda: cluster.leader(TOPIC), lambda now: now not in (leader, -1))
        # A new leader learns from its followers' fetches how far all replicas are.
        start, _ = wait_for(lambda: client.ends(TOPIC), lambda ends: ends[1] == RECORDS)
        assert start == KEPT_FROM
