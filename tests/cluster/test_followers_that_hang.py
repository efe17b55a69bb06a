"""A follower on a live broker that stops fetching leaves the ISR, and returns when it fetches again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.stock_client import StockClient

LONG_SESSION = {"broker.session.timeout.ms": "60000", "replica.lag.time.max.ms": "1000", "min.insync.replicas": "2"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path, brokers=2, properties=LONG_SESSION) as running:
        yield running


def error_of_write(cluster: BarnabasCluster) -> int | None:
    """Write one record with acks=all and without retries, as a client that knows only broker 0; return the error."""
    client = StockClient(cluster.brokers[0].bootstrap)
    (error,) = client.send("t", [b"value"], retries=0, request_timeout_ms=30_000, timeout_ms=60_000)
    return error.code() if error is not None else None


def await_writes(cluster: BarnabasCluster) -> None:
    """Wait until a write succeeds: on a busy machine a second without a fetch takes the follower out of the ISR."""
    wait_for(lambda: error_of_write(cluster), lambda error: error is None)


def test_a_paused_follower_stays_out_of_the_isr_until_it_fetches_again(cluster: BarnabasCluster) -> None:
    cluster.create_topic("t", assignment=[[0, 1]])
    await_writes(cluster)
    cluster.pause(1)
    try:
        error_of_write(cluster)
        wait_for(lambda: cluster.partition("t", 0, as_told_by=0).isr, lambda isr: isr == (0,))
        shrinks = cluster.metric(0, "kafka_server_replicamanager_isrshrinks_total")
        errors = [error_of_write(cluster) for _ in range(10)]
        assert errors == [KafkaError.NOT_ENOUGH_REPLICAS] * 10
        assert cluster.partition("t", 0, as_told_by=0).isr == (0,)
        assert cluster.metric(0, "kafka_server_replicamanager_isrshrinks_total") == shrinks
    finally:
        cluster.resume(1)
    wait_for(lambda: cluster.partition("t", 0, as_told_by=0).isr, lambda isr: set(isr) == {0, 1})
    await_writes(cluster)
