"""Transactions continue while one of two brokers is down, without any setting."""

from pathlib import Path

from confluent_kafka import Producer

from harness.cluster import barnabas_cluster
from harness.deadline import PATIENCE_S


def commit(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("to", b"value")
    producer.commit_transaction(PATIENCE_S)


def test_a_transactional_producer_continues_while_one_of_two_brokers_is_down(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=2) as cluster:
        cluster.create_topic("to", replication_factor=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "pay"})
        producer.init_transactions(PATIENCE_S)
        commit(producer)
        assert cluster.stop(1) == 0
        commit(producer)
        assert cluster.client().read("to") == [b"value", b"value"]
