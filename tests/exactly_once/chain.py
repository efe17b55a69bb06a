"""A chain of copies: librdkafka from the first topic to the second, Java from the second to the third."""

import random
import sys
import time
from typing import Final

from confluent_kafka import Producer

from drivers.builds import java_classes
from exactly_once.faults import Faults
from exactly_once.programs import Program
from exactly_once.reader import Reader
from harness.cluster import BarnabasCluster
from harness.deadline import PATIENCE_S
from harness.kafka_jars import java_command

PARTITIONS: Final = 3
TOPICS: Final = ("first", "second", "third")
FINISH_S: Final = 600.0


def fill(bootstrap: str, records: int) -> None:
    """Write the numbers below `records` to the partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(records):
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


def run(cluster: BarnabasCluster, records: int, chance: random.Random, protocol: str) -> list[str]:
    """Copy under faults; return the problems."""
    for topic in TOPICS:
        cluster.create_topic(topic, PARTITIONS, min(3, len(cluster.brokers)))
    fill(cluster.bootstrap, records)
    programs = copiers(cluster, protocol)
    faults, reader, begun = (
        Faults(cluster, programs, chance),
        Reader(cluster.bootstrap, TOPICS[-1], PARTITIONS),
        time.monotonic(),
    )
    grown = begun
    try:
        while reader.count < records and time.monotonic() - grown < FINISH_S:
            faults.next()
            before = reader.count
            reader.read_on(1.0)
            grown = time.monotonic() if reader.count > before else grown
            print(f"{time.monotonic() - begun:.0f} s: {reader.count} of {records} records", flush=True)
        faults.rest(10.0)  # Duplicates come late.
        reader.read_on(5.0)
    finally:
        for program in programs:
            program.kill()
    starts = ", ".join(f"{program.name} started {program.starts} times" for program in programs)
    print(f"chain: {reader.count} records, {dict(faults.done)}, {starts}", flush=True)
    return reader.differences(records)
