"""A writer and a group on one topic while listeners and certificates change, with checks of what they see."""

from collections.abc import Mapping
from typing import Protocol

from confluent_kafka import TopicPartition

from harness.deadline import PATIENCE_S, wait_for
from harness.stock_client import StockClient
from torture.history import History, Lane, check
from torture.workload import Reader, Writer

TOPIC = "t"
PARTITIONS = 3
GROUP = "readers"
RATE = 100


class Cluster(Protocol):
    """Brokers that a client can reach which knows all records in the end."""

    def client(self) -> StockClient:
        """Return a client that may read the topic and the group's commits."""


class Traffic:
    """Clients under names of their own, which come and go; the group goes on where it was."""

    def __init__(self, cluster: Cluster, rate: int = RATE) -> None:
        self.history = History(idempotent_topics=frozenset([TOPIC]))
        self.longest_gap_s = 0.0
        self._cluster = cluster
        self._rate = rate
        self._clients = 0
        self._writer: Writer | None = None
        self._reader: Reader | None = None

    def use(self, bootstrap: str, settings: Mapping[str, str]) -> None:
        """Start clients that reach the brokers so, and end those of before."""
        before = self._writer, self._reader
        name = f"client-{self._clients}"
        self._clients += 1
        security = {setting.replace(".", "_"): value for setting, value in settings.items()}
        self._writer = Writer(
            name,
            self.history,
            bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            rate=self._rate,
            enable_idempotence=True,
            max_in_flight_requests_per_connection=1,
            **security,
        )
        self._reader = Reader(name, self.history, bootstrap, GROUP, {TOPIC: PARTITIONS}, settings)
        for client in (self._writer, self._reader):
            client.start()
        self._end(*before)

    def begin_stretch(self) -> None:
        """Begin a new stretch: the longest time without an acknowledgement counts from now on."""
        self.longest_gap_s = 0.0
        if self._writer is not None:
            self._writer.longest_gap_s = 0.0

    @property
    def gap_s(self) -> float:
        """Return the longest time without an acknowledgement, of the present writer, too."""
        return max(self.longest_gap_s, self._writer.longest_gap_s if self._writer is not None else 0.0)

    def await_answers(self) -> None:
        """Wait until each record that was sent has an answer."""
        writer = self._writer
        assert writer is not None, "no clients are in use"
        sent = writer.sent + 1
        wait_for(lambda: writer.done >= sent)

    def problems(self) -> list[str]:
        """End the clients, and compare the acknowledged records with the stored ones."""
        writer, reader = self._writer, self._reader
        if writer is not None:
            self._end(writer, None)
        client = self._cluster.client()
        lanes = [Lane(TOPIC, partition) for partition in range(PARTITIONS)]
        for lane in lanes:
            self.history.logs[lane] = client.read(lane.topic, lane.partition, 0)
        wanted = sum(map(len, self.history.logs.values()))
        wait_for(lambda: sum(map(len, self.history.seen.values())) >= wanted)
        self._end(None, reader)
        consumer = client.consumer(GROUP)
        for place in consumer.committed([TopicPartition(*lane) for lane in lanes], timeout=PATIENCE_S):
            self.history.committed[Lane(place.topic, place.partition)] = place.offset
        consumer.close()
        return check(self.history)

    def _end(self, writer: Writer | None, reader: Reader | None) -> None:
        for client in (writer, reader):
            if client is not None:
                client.finish()
        if writer is not None:
            self.longest_gap_s = max(self.longest_gap_s, writer.longest_gap_s)
