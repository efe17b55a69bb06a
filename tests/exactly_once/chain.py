"""A chain of copies: librdkafka from the first topic to the second, Java from the second to the third."""

import random
import sys
import time
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from drivers.builds import java_classes
from exactly_once.faults import Faults
from exactly_once.programs import Program
from harness.cluster import BarnabasCluster
from harness.kafka_jars import java_command

PARTITIONS: Final = 3
TOPICS: Final = ("first", "second", "third")
FINISH_S: Final = 600.0
WAIT_S: Final = 60.0


def fill(bootstrap: str, records: int) -> None:
    """Write the numbers below `records`, dealt out to the partitions in their order."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(records):
        while True:
            try:
                producer.produce(TOPICS[0], b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(WAIT_S) == 0


class Reader:
    """Reads the committed records of the last topic as they come."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(TOPICS[-1], partition, 0) for partition in range(PARTITIONS)])
        self.numbers: list[list[int]] = [[] for _ in range(PARTITIONS)]

    @property
    def count(self) -> int:
        """How many records were read."""
        return sum(map(len, self.numbers))

    def read_on(self, seconds: float) -> None:
        """Take what has come within so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self._consumer.consume(10_000, 0.2):
                if message.error() is None:
                    self.numbers[message.partition() or 0].append(int(message.value() or b""))


def differences(numbers: list[list[int]], records: int) -> Iterator[str]:
    """Yield what is wrong with the partitions of the last topic."""
    for partition, found in enumerate(numbers):
        expected = list(range(partition, records, PARTITIONS))
        if found != expected:
            lost, twice = set(expected) - set(found), len(found) - len(set(found))
            yield f"partition {partition}: {len(found)} records, {len(lost)} lost, {twice} twice, or out of order"


def copiers(cluster: BarnabasCluster) -> list[Program]:
    """The two programs."""
    first, second, third = TOPICS
    python = [sys.executable, "-m", "exactly_once.copier", cluster.bootstrap, "by-librdkafka", first, second]
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    arguments = (cluster.bootstrap, "by-java", second, third)
    java = java_command("compat.Copier", *arguments, options=options, before=[java_classes()])
    return [Program("librdkafka", python, cluster.folder), Program("java", java, cluster.folder)]


def run(cluster: BarnabasCluster, records: int, chance: random.Random) -> list[str]:
    """Copy under faults; return what is wrong."""
    for topic in TOPICS:
        cluster.create_topic(topic, PARTITIONS, min(3, len(cluster.brokers)))
    fill(cluster.bootstrap, records)
    programs = copiers(cluster)
    faults, reader, begun = Faults(cluster, programs, chance), Reader(cluster.bootstrap), time.monotonic()
    grown = begun
    try:
        while reader.count < records and time.monotonic() - grown < FINISH_S:
            faults.next()
            before = reader.count
            reader.read_on(1.0)
            grown = time.monotonic() if reader.count > before else grown
            print(f"{time.monotonic() - begun:.0f} s: {reader.count} of {records} records", flush=True)
        faults.rest(10.0)  # What is there twice comes late.
        reader.read_on(5.0)
    finally:
        for program in programs:
            program.kill()
    starts = ", ".join(f"{program.name} started {program.starts} times" for program in programs)
    print(f"chain: {reader.count} records, {dict(faults.done)}, {starts}", flush=True)
    return list(differences(reader.numbers, records))
