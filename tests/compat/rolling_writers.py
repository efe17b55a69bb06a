"""Producers of three libraries that write numbered records through a whole test, each in its own way."""

import itertools
import threading
import time
from typing import Any, Protocol

from kafka import KafkaProducer

from drivers.remote import RemoteClient
from torture.history import Acknowledged, History, Lane
from torture.workload import Writer


class SteadyWriter(Protocol):
    """Writes from its making on; `finish` waits for all answers and tells the history."""

    longest_gap_s: float

    def written(self) -> int:
        """How many records were acknowledged by now."""

    def finish(self) -> None: ...


class LibrdkafkaWriter(Writer):
    """See `torture.workload`."""

    def __init__(self, name: str, history: History, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        super().__init__(name, history, bootstrap, topic, partitions=partitions, rate=rate, enable_idempotence=True)
        self.start()

    def written(self) -> int:
        return self.done


class KafkaPythonWriter:
    """A thread that sends; the library's own thread tells of answers."""

    TURN_S = 0.02

    def __init__(self, name: str, history: History, bootstrap: str, topic: str, partitions: int, rate: int) -> None:
        self._history, self._name = history, name
        self._topic, self._partitions, self._a_turn = topic, partitions, max(1, int(rate * self.TURN_S))
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=5)
        self._ending = threading.Event()
        self._acknowledged = 0
        self._answered_s = time.monotonic()
        self.longest_gap_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        numbers = itertools.count()
        try:
            while not self._ending.wait(self.TURN_S):
                for number in itertools.islice(numbers, self._a_turn):
                    self._history.sent[self._name] = number + 1
                    self._send(number)
            self._producer.flush(60)
        except Exception as error:
            self._failed(error)

    def _send(self, number: int) -> None:
        value = f"{self._name}/{number}".encode()
        sent = self._producer.send(self._topic, value, partition=number % self._partitions)
        sent.add_callback(self._answered, value)
        sent.add_errback(self._failed)

    def _answered(self, value: bytes, metadata: Any) -> None:
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self._answered_s)
        self._answered_s = now_s
        lane = Lane(metadata.topic, metadata.partition)
        self._history.acknowledged.append(Acknowledged(lane, value, metadata.offset))
        self._acknowledged += 1

    def _failed(self, error: BaseException) -> None:
        self._history.problems.append(f"write failed: {self._name}: {error!r}")

    def written(self) -> int:
        return self._acknowledged

    def finish(self) -> None:
        self._ending.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), f"{self._name} does not end"
        self._producer.close()


class JavaWriter:
    """In the driver's process."""

    def __init__(
        self, client: RemoteClient, name: str, history: History, topic: str, partitions: int, rate: int
    ) -> None:
        self._client, self._name, self._history, self._topic = client, name, history, topic
        self.longest_gap_s = 0.0
        client.ask("start_writing", topic=topic, writer=name, partitions=partitions, rate=rate)

    def written(self) -> int:
        return int(self._client.ask("written"))

    def finish(self) -> None:
        report = self._client.ask("stop_writing")
        self.longest_gap_s = report["longest_gap_s"]
        self._history.sent[self._name] = report["sent"]
        self._history.problems += [f"write failed: {self._name}: {error}" for error in report["errors"]]
        self._history.acknowledged += [
            Acknowledged(Lane(self._topic, partition), f"{self._name}/{number}".encode(), offset)
            for partition, number, offset in report["acknowledged"]
        ]
