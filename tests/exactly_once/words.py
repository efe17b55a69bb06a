"""Kafka Streams counts the words of lines with exactly_once_v2 while brokers and the program are killed."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

from exactly_once.faults import Faults
from exactly_once.programs import Program
from harness.cluster import BarnabasCluster
from harness.deadline import PATIENCE_S
from harness.kafka_jars import jars_folder, java_command
from harness.kept_builds import kept

STREAMS: Final = Path(__file__).parent / "streams"
POM, SOURCE = STREAMS / "pom.xml", STREAMS / "WordCount.java"
PARTITIONS: Final = 3
WORDS_A_LINE: Final = 5
VOCABULARY: Final = 500
FINISH_S: Final = 600.0


def classes() -> Path:
    """Return the folder of the compiled program."""

    def build(target: Path) -> None:
        path = f"{jars_folder(POM, 'kafka-streams')}/*"
        subprocess.run(["javac", "-d", str(target), "-cp", path, str(SOURCE)], check=True)

    return kept("word-count", [POM, SOURCE], build)


def program(cluster: BarnabasCluster) -> Program:
    """Return the program that counts."""
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
    jars = jars_folder(POM, "kafka-streams") / "*"
    arguments = (cluster.bootstrap, str(cluster.folder / "streams"))
    command = java_command("WordCount", *arguments, options=options, before=[classes(), jars])
    return Program("streams", command, cluster.folder)


def write_lines(producer: Producer, lines: int, chance: random.Random) -> Counter[str]:
    """Write lines of random words; return how often each word was written."""
    counts: Counter[str] = Counter()
    for number in range(lines):
        words = [f"word{chance.randrange(VOCABULARY)}" for _ in range(WORDS_A_LINE)]
        counts.update(words)
        producer.produce("lines", " ".join(words).encode(), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return counts


class Counts:
    """The newest committed count of each word."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition("counts", partition, 0) for partition in range(PARTITIONS)])
        self.of_words: dict[str, int] = {}
        self.went_back: list[str] = []

    def read_on(self, seconds: float) -> None:
        """Read the records that arrive within this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self._consumer.consume(10_000, 0.2):
                if message.error() is None:
                    self._take((message.key() or b"").decode(), int(message.value() or b""))

    def _take(self, word: str, count: int) -> None:
        if count <= self.of_words.get(word, 0):
            self.went_back.append(f"{word}: {count} behind {self.of_words[word]}")
        self.of_words[word] = count


def run(cluster: BarnabasCluster, lines: int, chance: random.Random) -> list[str]:
    """Count under faults; return the problems."""
    for topic in ("lines", "counts"):
        cluster.create_topic(topic, PARTITIONS, 3)
    counting = program(cluster)
    faults, counts = Faults(cluster, [counting], chance), Counts(cluster.bootstrap)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
    expected, begun, rounds = Counter[str](), time.monotonic(), 10
    try:
        for _ in range(rounds):
            expected += write_lines(producer, lines // rounds, chance)
            faults.next()
            counts.read_on(0.5)
        while counts.of_words != expected and time.monotonic() - begun < FINISH_S:
            faults.rest(1.0)
            counts.read_on(0.5)
        faults.rest(10.0)  # Duplicates come late.
        counts.read_on(5.0)
    finally:
        counting.kill()
    total = sum(counts.of_words.values())
    print(f"words: {total} counted, {dict(faults.done)}, started {counting.starts} times", flush=True)
    found = sorted(word for word in expected if counts.of_words.get(word) != expected[word])
    wrong = [f"{word}: counted {counts.of_words.get(word, 0)}, not {expected[word]}" for word in found]
    return wrong + counts.went_back
