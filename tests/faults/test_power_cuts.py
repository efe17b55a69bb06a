"""Recovery of a broker's logs after the machine was booted again since the broker was killed."""

import json
import sqlite3
from contextlib import closing

from confluent_kafka import TopicPartition
from faulty_broker import FaultyBroker
from started_brokers import StartBroker

from harness.barnabas_server import metric
from harness.deadline import PATIENCE_S, wait_for

LACKING = "barnabas_partitions_lacking_records"
UNSYNCED = {"flush.messages": "9223372036854775807"}


def boot_machine(broker: FaultyBroker) -> None:
    """Make the machine look booted again: its boot id then differs from the one in the broker's registration."""
    with closing(sqlite3.connect(broker.folder / "metadata.sqlite")) as database, database:
        (stored,) = database.execute("SELECT value FROM documents WHERE key = 'brokers/1'").fetchone()
        value = json.dumps(json.loads(stored) | {"boot_id": "an earlier one"}).encode()
        database.execute("UPDATE documents SET value = ? WHERE key = 'brokers/1'", (value,))


def test_records_synced_before_they_were_acknowledged_are_not_reported_as_lost(start_broker: StartBroker) -> None:
    broker = start_broker(log_flush_interval_messages="1")
    broker.client.create_topic("synced")
    broker.client.create_topic("unsynced", 1, UNSYNCED)
    broker.client.create_topic("empty", 1, UNSYNCED)
    for topic in ("synced", "unsynced"):
        broker.client.write(topic, [b"1", b"2"])
    committed = TopicPartition("synced", 0, 2)
    broker.client.commit("group", committed)
    broker.server.kill()
    boot_machine(broker)
    broker.server.start()
    broker.client.write("synced", [b"3"])
    broker.client.write("empty", [b"1"])
    with closing(broker.client.consumer("group")) as consumer:
        assert consumer.committed([committed], timeout=PATIENCE_S)[0].offset == 2
    # Only the topic with acknowledged records that were not synced is reported.
    wait_for(lambda: metric(broker.http_port, LACKING), lambda count: count == 1)
