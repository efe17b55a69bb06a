"""Stock clients that write and read without a pause, and note the answers. Each runs in a thread of its own."""

import sys
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from harness.stock_client import RECONNECTS, records_given
from torture.history import Acknowledged, Commit, History, Lane

WRITER = {
    **RECONNECTS,
    "acks": "all",
    "linger.ms": 5,
    "message.timeout.ms": 300_000,
    # Records wait while brokers lack a topic, since a user has to type `restore-metadata` first. The time counts from
    # the first use of the topic; librdkafka takes more microseconds than 31 bits hold for none.
    "topic.metadata.propagation.max.ms": 2_100_000,
    # Requests to a hanging broker time out soon, so that requests with unknown outcomes are repeated.
    "socket.timeout.ms": 5_000,
    "request.timeout.ms": 4_000,
}
READER = {
    **RECONNECTS,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": 10_000,
    "heartbeat.interval.ms": 1_000,
    "socket.timeout.ms": 10_000,
    "fetch.wait.max.ms": 100,
}
TURN_S = 0.02
PENDING_MAX = 5_000
FLUSH_SECONDS_MAX = 120.0
COMMIT_EVERY_S = 0.5


class Worker(threading.Thread):
    """A thread whose exception is a problem of the run."""

    def __init__(self, name: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.history = history
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.history.problems.append(f"client failed: {self.name}: {error!r}")

    def work(self) -> None:
        """Work until `_ending` is set."""
        raise NotImplementedError

    def finish(self, seconds_max: float = FLUSH_SECONDS_MAX + 10) -> None:
        """Return when it has ended in order."""
        self._ending.set()
        self.join(seconds_max)
        if self.is_alive():
            (*_, where) = traceback.format_stack(sys._current_frames().get(self.ident or 0))
            self.history.problems.append(f"client failed: {self.name} does not end: {where}")


class Writer(Worker):
    """A writer of numbered records, to the partitions in turn, at an even rate."""

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        topic: str,
        *,
        partitions: int,
        rate: float,
        **settings: str | float | bool,
    ) -> None:
        """Make a writer with settings of librdkafka, `_` for `.`; `rate` is records a second."""
        super().__init__(name, history)
        self._topic = topic
        self._partitions = partitions
        self._a_turn = max(1, int(rate * TURN_S))
        chosen = {setting.replace("_", "."): value for setting, value in settings.items()}
        self._producer = Producer({**WRITER, **chosen, "bootstrap.servers": bootstrap})
        self.sent = 0
        self.done = 0
        self.acknowledged_s = time.monotonic()
        self.longest_gap_s = 0.0

    def work(self) -> None:
        next_s = time.monotonic()
        while not self._ending.is_set():
            if time.monotonic() >= next_s and self.sent - self.done < PENDING_MAX:
                self._send()
                next_s += TURN_S
            self._producer.poll(TURN_S / 2)
        left = self._producer.flush(FLUSH_SECONDS_MAX)
        if left:
            self.history.problems.append(f"stuck: {self.name} has {left} records without an answer at the end")

    def _send(self) -> None:
        for number in range(self.sent, self.sent + self._a_turn):
            value = f"{self.name}/{number}".encode()
            self.history.sent[self.name] = self.sent = number + 1
            self._producer.produce(
                self._topic, value, partition=number % self._partitions, on_delivery=self._on_delivery
            )

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        self.done += 1
        if error is not None:
            self.history.problems.append(f"write failed: {self.name}: {error}")
            return
        now_s = time.monotonic()
        self.longest_gap_s = max(self.longest_gap_s, now_s - self.acknowledged_s)
        self.acknowledged_s = now_s
        offset = message.offset()
        lane = Lane(message.topic(), message.partition())
        self.history.acknowledged.append(Acknowledged(lane, message.value(), -1 if offset is None else offset))


class Reader(Worker):
    """A member of the group, which commits now and then."""

    def __init__(
        self,
        name: str,
        history: History,
        bootstrap: str,
        group: str,
        topics: Mapping[str, int],
        settings: Mapping[str, str] = {},
    ) -> None:
        super().__init__(name, history)
        own = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": name}
        self._consumer = Consumer({**READER, **settings, **own})
        self._consumer.subscribe(list(topics))
        self._read_s: float | None = None
        self.given = 0
        """The number of records since the start."""
        self.longest_gap_s = 0.0
        """The longest time between two records that it got."""

    def work(self) -> None:
        committed_s = time.monotonic()
        while not self._ending.is_set():
            given = records_given(self._consumer, 0.1)
            for message in given:
                self._take(message)
            if given:
                self.given += len(given)
                self._note_gap(time.monotonic())
            if time.monotonic() - committed_s > COMMIT_EVERY_S:
                self._commit()
                committed_s = time.monotonic()
        self._commit()
        self._consumer.close()

    def _note_gap(self, now_s: float) -> None:
        self.longest_gap_s = max(self.longest_gap_s, now_s - (self._read_s if self._read_s is not None else now_s))
        self._read_s = now_s

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is None:
            lane = Lane(message.topic(), message.partition())
            self.history.saw(lane, message.offset(), message.value(), self.name)
        elif error.fatal():
            raise KafkaException(error)

    def _commit(self) -> None:
        """Commit; the next commit repeats one that fails."""
        began_s = time.monotonic()
        try:
            kept = self._consumer.commit(asynchronous=False)
        except KafkaException:
            return
        ended_s = time.monotonic()
        for place in kept or ():
            if place.error is None and place.offset >= 0:
                lane = Lane(place.topic, place.partition)
                self.history.commits.append(Commit(lane, place.offset, began_s, ended_s, self.name))
