"""Kafka Streams counts the words of lines with exactly_once_v2 while brokers and the program are killed."""

import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition

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
ROUNDS: Final = 10


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


class Words:
    """See `faults.Proof`. The lines are written in rounds, one after each fault."""

    def __init__(self, cluster: BarnabasCluster, lines: int, chance: random.Random) -> None:
        for topic in ("lines", "counts"):
            cluster.create_topic(topic, PARTITIONS, 3)
        self.programs = [program(cluster)]
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 20})
        self._counts, self._expected = Counts(cluster.bootstrap), Counter[str]()
        self._lines, self._chance, self._rounds_left = lines // ROUNDS, chance, ROUNDS

    def go_on(self) -> int:
        if self._rounds_left:
            self._rounds_left -= 1
            self._expected += write_lines(self._producer, self._lines, self._chance)
        self._counts.read_on(1.0)
        total = sum(self._counts.of_words.values())
        print(f"words: {total} of {self._expected.total()} counted", flush=True)
        return total

    def is_done(self) -> bool:
        return not self._rounds_left and self._counts.of_words == self._expected

    def extend(self) -> None:
        """Do nothing: the program counts on, and nothing comes."""

    def problems(self) -> list[str]:
        expected, found = self._expected, self._counts.of_words
        differ = sorted(word for word in expected if found.get(word) != expected[word])
        wrong = [f"{word}: counted {found.get(word, 0)}, not {expected[word]}" for word in differ]
        return wrong + self._counts.went_back
