"""A chain of copies: librdkafka from the first topic to the second, Java from the second to the third."""

import sys
from typing import Final

from confluent_kafka import Producer

from drivers.builds import java_classes
from exactly_once.programs import Program
from exactly_once.reader import Reader
from harness.cluster import BarnabasCluster
from harness.deadline import PATIENCE_S
from harness.kafka_jars import java_command

PARTITIONS: Final = 3
TOPICS: Final = ("first", "second", "third")
EXTENSIONS: Final = 20
"""The part of the records that is written once more, as long as more faults are to come."""


def fill(bootstrap: str, first: int, end: int) -> None:
    """Write the numbers from `first` to below `end` to the partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(first, end):
        while True:
            try:
                producer.produce(TOPICS[0], b"%d" % number, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_S) == 0


def copiers(cluster: BarnabasCluster, protocol: str) -> list[Program]:
    """Return the two programs, whose groups have the classic protocol or the consumer protocol."""
    first, second, third = TOPICS
    python = [sys.executable, "-m", "exactly_once.copier", cluster.bootstrap, "by-librdkafka"]
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
    arguments = (cluster.bootstrap, "by-java", second, third, protocol)
    java = java_command("compat.Copier", *arguments, options=options, before=[java_classes()])
    return [
        Program("librdkafka", [*python, first, second, protocol], cluster.folder),
        Program("java", java, cluster.folder),
    ]


class Chain:
    """See `faults.Proof`."""

    def __init__(self, cluster: BarnabasCluster, records: int, protocol: str) -> None:
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS, min(3, len(cluster.brokers)))
        fill(cluster.bootstrap, 0, records)
        self.programs = copiers(cluster, protocol)
        self._bootstrap, self._portion, self._records = cluster.bootstrap, max(1, records // EXTENSIONS), records
        self._reader = Reader(cluster.bootstrap, TOPICS[-1], PARTITIONS)

    def go_on(self) -> int:
        self._reader.read_on(1.0)
        print(f"chain: {self._reader.count} of {self._records} records", flush=True)
        return self._reader.count

    def is_done(self) -> bool:
        return self._reader.count >= self._records

    def extend(self) -> None:
        if self.is_done():
            fill(self._bootstrap, self._records, self._records + self._portion)
            self._records += self._portion

    def problems(self) -> list[str]:
        return self._reader.differences(self._records)
