"""Small records one after the other, each timed, during an event in the cluster: how long is there no service?

`RawPulse` sends requests itself and asks one broker after the other for the leader, so it measures the brokers
alone; `LibrdkafkaPulse` is a producer with librdkafka's defaults, so it measures what an application sees.
"""

import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.job import NotRun
from bench.raw_requests import acknowledged

PAUSE_S: Final = 0.001
ANSWER_SECONDS_MAX: Final = 20.0
POLL_S: Final = 0.01
BEATS_MIN: Final = 20


class Beat(NamedTuple):
    """One record: when it was sent, and when it was acknowledged (monotonic)."""

    sent_s: float
    acknowledged_s: float


class Pulse(ABC):
    """A context: records flow from `with` to its end, in a separate thread."""

    def __init__(self) -> None:
        self.beats: list[Beat] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(ANSWER_SECONDS_MAX + 1)

    def _run(self) -> None:
        while not self._ending.wait(PAUSE_S):
            sent_s = time.monotonic()
            if self._send():
                self.beats.append(Beat(sent_s, time.monotonic()))

    @abstractmethod
    def _send(self) -> bool:
        """True if the record was acknowledged."""

    def await_beats(self, since_s: float, seconds_max: float) -> None:
        """Wait until some records that were sent since then are acknowledged. Raises NotRun."""
        deadline = time.monotonic() + seconds_max
        while sum(beat.sent_s >= since_s for beat in self.beats[-BEATS_MIN:]) < BEATS_MIN:
            if time.monotonic() > deadline:
                raise NotRun(f"{type(self).__name__}: no record acknowledged for {seconds_max:.0f} s")
            time.sleep(POLL_S)

    def gap_ms(self, since_s: float) -> float:
        """Return the longest time from one acknowledgement to the next, of those that ended since then."""
        times = [beat.acknowledged_s for beat in self.beats]
        return max(after - before for before, after in pairwise(times) if after >= since_s) * 1e3

    def p99_us(self, first_s: float, last_s: float) -> float:
        """Return the p99 of the records that were sent in this time. Raises NotRun if they are too few."""
        taken = sorted(
            beat.acknowledged_s - beat.sent_s for beat in list(self.beats) if first_s <= beat.sent_s <= last_s
        )
        if len(taken) < BEATS_MIN:
            raise NotRun(f"only {len(taken)} records in {last_s - first_s:.1f} s")
        return taken[len(taken) * 99 // 100] * 1e6


class RawPulse(Pulse):
    """A pulse that stays with the broker that acknowledges, and tries the next one if a broker does not."""

    def __init__(
        self, ports: Sequence[int], topic: str, partition: int = 0, answer_seconds_max: float = ANSWER_SECONDS_MAX
    ) -> None:
        super().__init__()
        self._ports = ports
        self._answer_seconds_max = answer_seconds_max
        self._at = 0
        self._topic = topic
        self._partition = partition
        self._connection: socket.socket | None = None

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._leave()

    def _send(self) -> bool:
        with suppress(OSError):
            if self._connection is None:
                address = ("127.0.0.1", self._ports[self._at])
                self._connection = socket.create_connection(address, timeout=self._answer_seconds_max)
            if acknowledged(self._connection, self._topic, self._partition):
                return True
        self._leave()
        self._at = (self._at + 1) % len(self._ports)
        return False

    def _leave(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class LibrdkafkaPulse(Pulse):
    """A pulse with one record in flight and acks=all; librdkafka retries by itself."""

    def __init__(self, bootstrap: str, topic: str, partition: int = 0) -> None:
        super().__init__()
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
        self._topic = topic
        self._partition = partition

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._producer.purge()
        self._producer.flush(1)

    def _send(self) -> bool:
        outcome: list[KafkaError | None] = []

        def note(error: KafkaError | None, _: Message) -> None:
            outcome.append(error)

        self._producer.produce(self._topic, b"first", partition=self._partition, on_delivery=note)
        while not outcome and not self._ending.is_set():
            self._producer.poll(POLL_S)
        return outcome == [None]
