"""Records that were deleted do not return when another broker leads."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.cluster import barnabas_cluster
from harness.deadline import wait_for

TOPIC, RECORDS, KEPT_FROM = "flights", 10, 6


def test_deleted_records_do_not_return_when_the_leader_is_killed(tmp_path: Path) -> None:
    settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with barnabas_cluster(tmp_path, properties=settings) as cluster:
        cluster.create_topic(TOPIC, 1, 3)
        cluster.wait_until_full(TOPIC)
        client = cluster.client()
        client.write(TOPIC, [b"%d" % number for number in range(RECORDS)])
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        deleted = admin.delete_records([TopicPartition(TOPIC, 0, KEPT_FROM)], operation_timeout=20)
        assert [future.result(30).low_watermark for future in deleted.values()] == [KEPT_FROM]
        leader = cluster.leader(TOPIC)
        cluster.kill(leader)
        wait_for(lambda: cluster.leader(TOPIC), lambda now: now not in (leader, -1))
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "looking"})
        ends = wait_for(lambda: consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=10), bool)
        consumer.close()
        assert ends == (KEPT_FROM, RECORDS)
