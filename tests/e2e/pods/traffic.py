"""Runs stock clients outside of Kubernetes that write and read all the time, and checks what they were promised.

with Traffic(castle.bootstrap, "flights", partitions=6) as traffic:
    castle.crash("castle-broker-0")
assert not traffic.problems
"""

from collections import Counter
from statistics import quantiles
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaError, TopicPartition

from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import StockClient
from torture.history import History, Lane, check
from torture.workload import Reader, Writer

RATE: Final = 200


class TimedWriter(Writer):
    """A writer that also measures how long each acknowledgement took, and counts them by partition."""

    latencies_s: list[float]
    acknowledged: Counter[int]

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        super()._on_delivery(error, message)
        if error is None:
            self.latencies_s.append(message.latency() or 0.0)
            self.acknowledged[message.partition()] += 1


class Traffic:
    """One idempotent writer with acks=all and a group of two; `problems` has what was wrong, once it has ended."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, rate: int = RATE) -> None:
        """Start the clients; `rate` is records a second."""
        self._client = StockClient(bootstrap)
        self._group = f"readers-of-{topic}"
        self._lanes = [Lane(topic, partition) for partition in range(partitions)]
        self.history = History(idempotent_topics=frozenset({topic}))
        settings = {"enable_idempotence": True, "max_in_flight_requests_per_connection": 1}
        self.writer = TimedWriter(topic, self.history, bootstrap, topic, rate=rate, partitions=partitions, **settings)
        self.writer.latencies_s, self.writer.acknowledged = [], Counter()
        self.members = [
            Reader(f"{topic}-{number}", self.history, bootstrap, self._group, {topic: partitions})
            for number in range(2)
        ]
        self.problems: list[str] = []
        self._rate = rate
        self._stretch_began = 0

    def __enter__(self) -> Self:
        for client in (self.writer, *self.members):
            client.start()
        self.await_progress()
        return self

    def await_progress(self, seconds_max: float = PATIENCE_S) -> None:
        """Return when a second's records are acknowledged, and as many read, some of each partition.

        Each member must have some: one that joins late leaves its partitions to the others, and its stall
        would count for the next event.
        """
        written, seen, given = self._written(), self._seen(), self._given()
        wait_for(
            lambda: (self._written() - written, self._seen() - seen, self._given() - given, self.history.problems),
            lambda ahead: self._is_progress(*ahead[:3]),
            seconds_max,
        )

    def _is_progress(self, written: Counter[int], seen: Counter[int], given: Counter[int]) -> bool:
        moved = all(each.total() >= self._rate and len(each) == len(self._lanes) for each in (written, seen))
        return moved and len(given) == len(self.members)

    def begin_stretch(self) -> None:
        """Begin a new stretch: the longest times count from now on."""
        self._stretch_began = len(self.writer.latencies_s)
        self.writer.longest_gap_s = 0.0
        for reader in self.members:
            reader.longest_gap_s = 0.0

    def abandon(self) -> None:
        """Leave the clients to end by themselves, after a failure."""
        for client in (self.writer, *self.members):
            client.finish(seconds_max=0)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.finish()
        try:
            if kind is None:
                self._read_back()
        finally:
            for reader in self.members:
                reader.finish()
        if kind is None:
            self._read_commits()
            self.problems = check(self.history)

    @property
    def writer_gap_s(self) -> float:
        """Return the longest time between two acknowledgements."""
        return self.writer.longest_gap_s

    @property
    def reader_gap_s(self) -> float:
        """Return the longest time in which a member of the group got nothing."""
        return max(reader.longest_gap_s for reader in self.members)

    @property
    def slowest_s(self) -> float:
        """Return the longest time that a record waited for its acknowledgement, also if one partition stalls alone."""
        return max(self.writer.latencies_s[self._stretch_began :], default=0.0)

    @property
    def longest_stall_s(self) -> float:
        """Return the longest stall of writers, of readers and of any record since the stretch began."""
        return max(self.writer_gap_s, self.reader_gap_s, self.slowest_s)

    def summary(self) -> str:
        """Return a line for a table."""
        acknowledged = len(self.history.acknowledged)
        p50_ms, p99_ms = (quantiles(self.writer.latencies_s, n=100)[each] * 1000 for each in (49, 98))
        times = f"p50 {p50_ms:.0f} ms, p99 {p99_ms:.0f} ms, slowest {self.slowest_s:.1f} s"
        gaps = f"longest time without one {self.writer_gap_s:.1f} s"
        gaps += f", of a reader without records {self.reader_gap_s:.1f} s"
        return f"{acknowledged} records acknowledged, {times}; {gaps}"

    def _read_back(self) -> None:
        for lane in self._lanes:
            self.history.logs[lane] = self._client.read(lane.topic, lane.partition, 0)
        wanted = sum(map(len, self.history.logs.values()))
        wait_for(self._seen, lambda seen: seen.total() >= wanted)

    def _read_commits(self) -> None:
        consumer = self._client.consumer(self._group)
        for place in consumer.committed([TopicPartition(*lane) for lane in self._lanes], timeout=PATIENCE_S):
            self.history.committed[Lane(place.topic, place.partition)] = place.offset
        consumer.close()

    def _written(self) -> Counter[int]:
        """Return the number of acknowledged records, by partition."""
        return Counter(self.writer.acknowledged)

    def _given(self) -> Counter[int]:
        """Return the number of records that each member got, by its number."""
        return Counter({number: reader.given for number, reader in enumerate(self.members)})

    def _seen(self) -> Counter[int]:
        """Return the number of records that the group got, by partition."""
        return Counter({lane.partition: len(records) for lane, records in list(self.history.seen.items())})
