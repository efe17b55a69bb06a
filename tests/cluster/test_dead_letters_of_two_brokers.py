"""Dead letters whose partition another broker leads than that of their records, on three brokers that are killed."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S, wait_for

JOBS, LETTERS, GROUP = "jobs", "dlq.jobs", "workers"
LED_BY, TAKEN_BY = 0, 1
"""The brokers that lead the partition of the records, and that of the dead letters."""
PREFIX = "__dlq.errors."
CONFIGS = {"share.auto.offset.reset": "earliest", "errors.deadletterqueue.topic.name": LETTERS}
WAITING = rf"barnabas_share_records_waiting_for_dead_letters\{{group=\"{GROUP}\",.*\}}"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path) as running:
        running.create_topic(JOBS, assignment=[[LED_BY, 1, 2]])
        dead = {"errors.deadletterqueue.group.enable": "true", "min.insync.replicas": "1"}
        running.create_topic(LETTERS, assignment=[[TAKEN_BY]], config=dead)
        entries = [ConfigEntry(*each, incremental_operation=AlterConfigOpType.SET) for each in CONFIGS.items()]
        resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
        client = running.client()
        client.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        yield running


def work(consumer: ShareConsumer, rejected: set[int], seen: set[int]) -> set[int]:
    """Take records, reject those with these offsets, and accept the others; return `seen` with all offsets so far."""
    messages = [each for each in consumer.poll(1.0) if each.error() is None]
    for message in messages:
        kind = AcknowledgeType.REJECT if message.offset() in rejected else AcknowledgeType.ACCEPT
        consumer.acknowledge(message, kind)
    consumer.commit_sync()
    seen.update(message.offset() or 0 for message in messages)
    return seen


def letters(cluster: BarnabasCluster) -> Counter[int]:
    """Return how many dead letters of each record there are."""
    client = cluster.client()
    reader, found = client.consumer(), Counter[int]()
    _, end = client.ends(LETTERS)
    reader.assign([TopicPartition(LETTERS, 0, 0)])
    while found.total() < end:
        for message in reader.consume(1000, 0.1):
            assert message.error() is None
            found[int(dict(message.headers() or ())[f"{PREFIX}offset"] or b"-1")] += 1
    reader.close()
    return found


def waiting(cluster: BarnabasCluster, number: int) -> float:
    return cluster.metric(number, WAITING) or 0


def test_dead_letters_reach_another_broker_and_are_neither_lost_nor_doubled_by_a_failover(
    cluster: BarnabasCluster,
) -> None:
    client = cluster.client()
    client.write(JOBS, [b"job %d" % number for number in range(6)])
    write_old_letter(cluster, offset=7)
    explicit = {**client.settings, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    consumer = ShareConsumer(explicit)
    consumer.subscribe([JOBS])
    seen: set[int] = set()
    wait_for(lambda: work(consumer, {1, 4}, seen), lambda found: len(found) == 6)
    wait_for(lambda: letters(cluster), lambda found: found == {1: 1, 4: 1, 7: 1})

    cluster.kill(TAKEN_BY)
    client.write(JOBS, [b"job %d" % number for number in range(6, 9)])
    wait_for(lambda: work(consumer, {7}, seen), lambda found: len(found) == 9)
    wait_for(lambda: waiting(cluster, LED_BY), lambda count: count == 1)
    cluster.kill(LED_BY)
    cluster.start(TAKEN_BY)
    wait_for(lambda: (work(consumer, set(), seen), letters(cluster))[1], lambda found: found == {1: 1, 4: 1, 7: 2})
    cluster.start(LED_BY)
    consumer.close()


def write_old_letter(cluster: BarnabasCluster, offset: int) -> None:
    """Write a dead letter as of an earlier topic of the same name, which is older than the record at the offset."""
    named = {"topic": JOBS, "partition": "0", "offset": str(offset), "group": GROUP, "delivery.count": "1"}
    headers: dict[str, str | bytes | None] = {
        PREFIX + name: value for name, value in {**named, "message": "rejected"}.items()
    }
    producer = Producer(cluster.client().settings)
    producer.produce(LETTERS, headers=headers, timestamp=int(time.time() * 1000) - 3 * 3600 * 1000)
    assert producer.flush(PATIENCE_S) == 0
