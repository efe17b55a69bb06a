"""Responses for admin clients about idempotent producers, and the finalized level of a feature."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka.protocol.admin import DescribeProducersRequest

from barnabas_core.conventions import METADATA_LEVEL_MAX
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import PATIENCE_S

UNKNOWN_TOPIC_OR_PARTITION = 3
ProducersTopic = DescribeProducersRequest.TopicRequest


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with barnabas_cluster(tmp_path_factory.mktemp("quorum"), brokers=2) as cluster:
        yield cluster


def test_each_replica_tells_the_idempotent_producers_of_a_partition(cluster: BarnabasCluster) -> None:
    cluster.create_topic("flights", replication_factor=2)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0})
    for number in range(7):
        producer.produce("flights", b"%d" % number)
        assert producer.flush(PATIENCE_S) == 0
    request = DescribeProducersRequest(topics=[ProducersTopic(name="flights", partition_indexes=[0, 1])])
    for broker in cluster.brokers:
        known, missing = cluster.ask(broker, request, 0).topics[0].partitions
        (state,) = known.active_producers
        assert (known.error_code, state.last_sequence, state.producer_epoch) == (0, 6, 0)
        assert state.current_txn_start_offset == -1
        assert missing.error_code == UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_does_not_start_if_the_finalized_level_is_unsupported(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=1) as alone:
        assert alone.stop(0) == 0
        with closing(sqlite3.connect(tmp_path / "metadata.sqlite")) as database, database:
            later = json.dumps({"levels": {"barnabas.metadata.version": 9}}).encode()
            database.execute("UPDATE documents SET value = ? WHERE key = 'features'", (later,))
        alone.brokers[0].launch()
        assert alone.brokers[0].wait_for_end() == 1
        why = f"finalized at level 9, but this broker version supports levels 1 to {METADATA_LEVEL_MAX}"
        assert why in alone.logs_text()
