"""A producer with librdkafka's defaults that writes to all partitions of a topic: when is each of them served again?"""

import threading
import time
from functools import partial
from typing import Final, Self

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.job import NotRun

PERIOD_S: Final = 0.2
"""One small record a partition: 5,000 a second for 1,000 partitions."""
POLL_S: Final = 0.01
END_SECONDS_MAX: Final = 20.0
NEVER_S: Final = -1.0


class SpreadLoad:
    """A context: one record after the other with acks=all in each partition, from `with` to its end, in a thread."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0}
        self._producer = Producer(settings)
        self._topic = topic
        self._in_flight: set[int] = set()
        self._acknowledged_s = [NEVER_S] * partitions
        """By partition, the time at which the newest acknowledged record was sent."""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(END_SECONDS_MAX)
        self._producer.purge()
        self._producer.flush(1)

    def _run(self) -> None:
        while not self._ending.is_set():
            now_s = time.monotonic()
            for partition in range(len(self._acknowledged_s)):
                if partition not in self._in_flight:
                    self._in_flight.add(partition)
                    note = partial(self._note, partition, now_s)
                    self._producer.produce(self._topic, b"load", partition=partition, on_delivery=note)
            while time.monotonic() < now_s + PERIOD_S:
                self._producer.poll(POLL_S)

    def _note(self, partition: int, sent_s: float, error: KafkaError | None, _: Message) -> None:
        self._in_flight.discard(partition)
        if error is None:
            self._acknowledged_s[partition] = sent_s

    def await_all(self, since_s: float, seconds_max: float) -> float:
        """Return when each partition had acknowledged a record sent since then (monotonic). Raises NotRun."""
        deadline = time.monotonic() + seconds_max
        while lacking := sum(sent_s < since_s for sent_s in self._acknowledged_s):
            if time.monotonic() > deadline:
                raise NotRun(f"after {seconds_max:.0f} s {lacking} partitions have acknowledged no record")
            time.sleep(POLL_S)
        return time.monotonic()
