"""Three real brokers with three groups: one reads too slowly, one has stopped, one has read everything."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer

from harness.cluster import BarnabasCluster, barnabas_cluster

TOPIC: Final = "flights"
PARTITIONS: Final = 3
RECORDS_A_TURN: Final = 50
TRAFFIC: Final = {TOPIC: RECORDS_A_TURN, "bookings": 20, "weather": 5}
"""The topics, and the number of records that each gets in a turn."""
TURN_S: Final = 0.1
VALUE: Final = bytes(500)
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0"}


@contextmanager
def three_brokers(folder: Path, **settings: str) -> Iterator[BarnabasCluster]:
    """Run three brokers without a topic."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    with barnabas_cluster(folder, properties={**SETTINGS, **given}) as cluster:
        yield cluster


@contextmanager
def load(cluster: BarnabasCluster) -> Iterator[None]:
    """Put load on the topics: `slow` falls behind, `gone` read a little and left, `quick` reads everything."""
    client, ending = cluster.client(), threading.Event()
    client.write(TOPIC, [VALUE] * RECORDS_A_TURN)
    _read_once(client.consumer("gone"))
    work = (
        lambda: _write(Producer(client.settings), ending),
        lambda: _read(client.consumer("slow"), [TOPIC], RECORDS_A_TURN // 5, ending),
        lambda: _read(client.consumer("quick"), [*TRAFFIC], RECORDS_A_TURN * 10, ending),
    )
    failures: list[Exception] = []
    threads = [threading.Thread(target=_noting, args=(each, failures)) for each in work]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        ending.set()
        for each in threads:
            each.join()
    assert not failures, failures


def _noting(work: Callable[[], None], failures: list[Exception]) -> None:
    try:
        work()
    except Exception as error:
        failures.append(error)


def _write(producer: Producer, ending: threading.Event) -> None:
    while not ending.wait(TURN_S):
        for topic, records in TRAFFIC.items():
            for number in range(records):
                producer.produce(topic, VALUE, partition=number % PARTITIONS)
        producer.flush(TURN_S)


def _read(consumer: Consumer, topics: list[str], records: int, ending: threading.Event) -> None:
    consumer.subscribe(topics)
    try:
        while not ending.wait(TURN_S):
            if consumer.consume(records, timeout=TURN_S):
                with suppress(KafkaException):  # A member that a busy machine holds up joins again.
                    consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def _read_once(consumer: Consumer) -> None:
    consumer.subscribe([TOPIC])
    try:
        while not consumer.consume(1, timeout=TURN_S):
            pass
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
