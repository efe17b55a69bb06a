"""Transactions of every client library during failovers, coordinator moves and rolls: each is atomic."""

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from drivers.every_client import TRANSACTIONAL
from drivers.interface import Client, Message, Writer
from exactly_once.faults import Faults
from harness.cluster import RunningCluster

PARTITIONS: Final = 3
RECORDS: Final = 6
"""The records of each transaction, spread over all partitions."""
ABORTED: Final = 5
"""One in this many transactions is aborted, right after the one before: its markers are still being written."""
PAUSE_S: Final = 0.1
FINISH_S: Final = 900.0
READ_S: Final = 120.0


class Outcome(StrEnum):
    """The outcome of a transaction by its client; after an error of a commit it may have ended either way."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Worker(threading.Thread):
    """Runs transactions of one client library; after an error, a new client continues with the same id."""

    def __init__(self, name: str, bootstrap: str, transactions: int, folder: Path) -> None:
        super().__init__(name=name, daemon=True)
        self.topic = f"by-{name}"
        self.outcomes: list[Outcome] = []
        self.errors: Counter[str] = Counter()
        self._servers = bootstrap
        self._transactions = transactions
        self._log = folder / f"{name}.log"
        self._client: Client | None = None
        self._writer: Writer | None = None

    def run(self) -> None:
        while len(self.outcomes) < self._transactions:
            if self._writer is None:
                self._open()
            else:
                self.outcomes.append(self._transact(self._writer, len(self.outcomes)))
            if self._writer is None or _commits(len(self.outcomes)):
                time.sleep(PAUSE_S)
        self._discard()

    def _open(self) -> None:
        try:
            self._client = self._client or TRANSACTIONAL[self.name](self._servers, self._log)
            self._writer = self._client.writer(self.topic)
        except Exception as error:
            self._failed(error)

    def _transact(self, writer: Writer, number: int) -> Outcome:
        """Run one transaction; one whose records failed is not committed: the next writer fences and aborts it."""
        commit = _commits(number)
        try:
            writer.write(self.topic, [Message(b"%d" % number, partition=n % PARTITIONS) for n in range(RECORDS)])
        except Exception as error:
            self._failed(error)
            return Outcome.ABORTED
        try:
            writer.end(commit=commit)
        except Exception as error:
            self._failed(error)
            return Outcome.UNKNOWN if commit else Outcome.ABORTED
        return Outcome.COMMITTED if commit else Outcome.ABORTED

    def _failed(self, error: Exception) -> None:
        self.errors[f"{type(error).__name__}: {error}"[:100]] += 1
        self._discard()

    def _discard(self) -> None:
        for held in (self._writer, self._client):
            with suppress(Exception):
                if held is not None:
                    held.close()
        self._writer = self._client = None


def _commits(number: int) -> bool:
    return number % ABORTED != ABORTED - 1


def committed_numbers(bootstrap: str, topic: str) -> list[list[int]]:
    """Return the committed records of each partition, to its end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    deadline = time.monotonic() + READ_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"{topic}: the partitions without an end: {set(range(PARTITIONS)) - ended}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, partition = message.error(), message.partition() or 0
        if error is None:
            found[partition].append(int(message.value() or b""))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(partition)
    consumer.close()
    return found


def differences(topic: str, outcomes: list[Outcome], found: list[list[int]]) -> Iterator[str]:
    """Yield the differences between the committed records of a topic and the outcomes of its transactions."""
    counts = Counter(number for partition in found for number in partition)
    for number, outcome in enumerate(outcomes):
        allowed = {Outcome.COMMITTED: {RECORDS}, Outcome.ABORTED: {0}, Outcome.UNKNOWN: {0, RECORDS}}[outcome]
        if counts[number] not in allowed:
            yield f"{topic}: {counts[number]} of {RECORDS} records of transaction {number}, which was {outcome}"
    for partition, numbers in enumerate(found):
        if numbers != sorted(numbers):
            yield f"{topic}: partition {partition} is out of order"


def run(cluster: RunningCluster, transactions: int, folder: Path, chance: random.Random) -> list[str]:
    """Run transactions under faults; return the problems."""
    workers = [Worker(name, cluster.bootstrap, transactions, folder) for name in TRANSACTIONAL]
    for worker in workers:
        cluster.create_topic(worker.topic, PARTITIONS, 3)
    faults, begun = Faults(cluster, [], chance), time.monotonic()
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers) and time.monotonic() - begun < FINISH_S:
        faults.next()
        print(", ".join(f"{worker.name} {len(worker.outcomes)}" for worker in workers), flush=True)
    print(f"clients: {dict(faults.done)} in {time.monotonic() - begun:.0f} s", flush=True)
    wrong = []
    for worker in workers:
        said = ", ".join(f"{count} {outcome}" for outcome, count in Counter(worker.outcomes).items())
        print(f"{worker.name}: {said}; errors: {dict(worker.errors)}", flush=True)
        if worker.is_alive():
            wrong.append(f"{worker.name} had ended {len(worker.outcomes)} of {transactions} transactions")
        else:
            wrong += differences(worker.topic, worker.outcomes, committed_numbers(cluster.bootstrap, worker.topic))
    return wrong
