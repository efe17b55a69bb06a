"""What a broker makes of its logs when the machine has started anew since it was killed."""

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
    """As far as the broker can know: the boot id of the machine is another one than its registration has."""
    with closing(sqlite3.connect(broker.folder / "metadata.sqlite")) as database, database:
        (stored,) = database.execute("SELECT value FROM documents WHERE key = 'brokers/1'").fetchone()
        value = json.dumps(json.loads(stored) | {"boot_id": "an earlier one"}).encode()
        database.execute("UPDATE documents SET value = ? WHERE key = 'brokers/1'", (value,))


def test_what_was_acknowledged_only_once_it_was_synced_needs_nobody_to_accept_a_loss(start_broker: StartBroker) -> None:
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
    # Of the topic of which what was acknowledged was not synced.
    wait_for(lambda: metric(broker.http_port, LACKING), lambda count: count == 1)
