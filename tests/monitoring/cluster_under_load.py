"""Three real brokers with three groups, one too slow, one stopped and one fine, and with a share group."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer

from harness.cluster import BarnabasCluster, barnabas_cluster

TOPIC: Final = "flights"
PARTITIONS: Final = 3
RECORDS_A_TURN: Final = 50
TRAFFIC: Final = {TOPIC: RECORDS_A_TURN, "bookings": 20, "weather": 5}
"""The topics, and the number of records that each gets in a turn."""
WORKERS: Final = "workers"
"""The share group, which releases one record of 50, and rejects one of 50."""
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
    """Put load on the topics.

    `slow` falls behind, `gone` read a little and left, `quick` reads everything, and `workers` share the records.
    """
    client, ending = cluster.client(), threading.Event()
    client.write(TOPIC, [VALUE] * RECORDS_A_TURN)
    _read_once(client.consumer("gone"))
    work = (
        lambda: _write(Producer(client.settings), ending),
        lambda: _read(client.consumer("slow"), [TOPIC], RECORDS_A_TURN // 5, ending),
        lambda: _read(client.consumer("quick"), [*TRAFFIC], RECORDS_A_TURN * 10, ending),
        lambda: _work({**client.settings, "group.id": WORKERS, "share.acknowledgement.mode": "explicit"}, ending),
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


def _work(settings: dict[str, Any], ending: threading.Event) -> None:
    consumer, count = ShareConsumer(settings), 0
    consumer.subscribe([TOPIC])
    kinds = {0: AcknowledgeType.RELEASE, 1: AcknowledgeType.REJECT}
    try:
        while not ending.wait(TURN_S):
            for message in consumer.poll(TURN_S):
                if message.error() is None:
                    consumer.acknowledge(message, kinds.get(count % 50, AcknowledgeType.ACCEPT))
                    count += 1
            with suppress(KafkaException):
                consumer.commit_sync()
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
