"""Quotas as real clients see them: librdkafka gets the throttle time, and raw requests get each error."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    CreateTopicsRequest,
)

from harness.ask import CLIENT_ID, ask
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for

WAIT_S = 30.0
THROTTLING_QUOTA_EXCEEDED = 89
Entry = AlterClientQuotasRequest.EntryData


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("quotas"), brokers=1) as cluster:
        cluster.create_topic("bounded", partitions=1)
        yield cluster


def port(cluster: BarnabasCluster) -> int:
    return int(cluster.bootstrap.rpartition(":")[2])


def alter(
    cluster: BarnabasCluster, kind: str, name: str | None, key: str, value: float | None
) -> tuple[int, str | None]:
    entry = Entry(
        entity=[Entry.EntityData(entity_type=kind, entity_name=name)],
        ops=[Entry.OpData(key=key, value=value or 0.0, remove=value is None)],
    )
    answer = ask(port(cluster), AlterClientQuotasRequest(entries=[entry], validate_only=False), version=1)
    return answer.entries[0].error_code, answer.entries[0].error_message


def test_producers_and_consumers_above_their_quota_get_a_throttle_time(cluster: BarnabasCluster) -> None:
    throttled: list[Any] = []
    client = {"bootstrap.servers": cluster.bootstrap, "client.id": "loader", "throttle_cb": throttled.append}
    assert alter(cluster, "client-id", "loader", "producer_byte_rate", 9_000)[0] == 0
    producer = Producer({**client, "linger.ms": 0})
    for _ in range(2):
        producer.produce("bounded", bytes(50_000))
        assert producer.flush(WAIT_S) == 0
    assert wait_for(lambda: producer.poll(0.1) or throttled, seconds_max=WAIT_S)
    assert throttled[0].throttle_time > 0

    throttled.clear()
    assert alter(cluster, "client-id", "loader", "producer_byte_rate", None)[0] == 0
    assert alter(cluster, "client-id", "loader", "consumer_byte_rate", 9_000)[0] == 0
    consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})
    consumer.subscribe(["bounded"])
    assert wait_for(lambda: (consumer.poll(0.1) and False) or throttled, seconds_max=WAIT_S)
    consumer.close()
    assert alter(cluster, "client-id", "loader", "consumer_byte_rate", None)[0] == 0


def test_a_consumer_reads_a_batch_larger_than_its_quota_allows_in_a_window(cluster: BarnabasCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    producer.produce("bounded", bytes(50_000))
    assert producer.flush(WAIT_S) == 0
    assert alter(cluster, "client-id", "slow", "consumer_byte_rate", 4_000)[0] == 0
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "client.id": "slow", "group.id": "slow"})
    consumer.assign([TopicPartition("bounded", 0, 0)])
    assert wait_for(lambda: consumer.poll(0.1), seconds_max=WAIT_S)
    consumer.close()
    assert alter(cluster, "client-id", "slow", "consumer_byte_rate", None)[0] == 0


def test_topics_above_the_mutation_quota_are_refused_and_not_created(cluster: BarnabasCluster) -> None:
    assert alter(cluster, "client-id", CLIENT_ID, "controller_mutation_rate", 0.1)[0] == 0
    topic = CreateTopicsRequest.CreatableTopic
    wanted = [topic(name=n, num_partitions=2, replication_factor=1, assignments=[], configs=[]) for n in ("a", "b")]
    request = CreateTopicsRequest(topics=wanted, timeout_ms=5000, validate_only=False)
    answer = ask(port(cluster), request, version=7)
    assert {each.name: each.error_code for each in answer.topics} == {"a": 0, "b": THROTTLING_QUOTA_EXCEEDED}
    assert answer.throttle_time_ms > 0
    assert "b" not in {view.topic for view in cluster.describe()}
    assert alter(cluster, "client-id", CLIENT_ID, "controller_mutation_rate", None)[0] == 0
