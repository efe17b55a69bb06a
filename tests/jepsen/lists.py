"""The lists under test: partitions of one topic, which a consumer reads up to the last stable offset."""

import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from harness.stock_client import RECONNECTS
from jepsen.history import Entry, Read, Value

TOPIC: Final = "lists"
KEYS: Final = 4
READER: Final = {
    **RECONNECTS,
    "group.id": "nobody",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # Records are never deleted: an offset out of range is a finding, so the position is not reset.
    "auto.offset.reset": "error",
    "fetch.wait.max.ms": 20,
    "socket.timeout.ms": 5_000,
}
COMMITTED, EVERYTHING = "read_committed", "read_uncommitted"


class Lists:
    """A consumer that continues where it ended."""

    def __init__(self, bootstrap: str, isolation: str = COMMITTED) -> None:
        self._consumer = Consumer({**READER, "bootstrap.servers": bootstrap, "isolation.level": isolation})
        self.positions = dict.fromkeys(range(KEYS), 0)

    def read(self, seconds_max: float) -> list[Read]:
        """Read all lists to their ends, or as far as possible within this time."""
        # An assignment makes the client request the ends again.
        self._consumer.assign([TopicPartition(TOPIC, key, offset) for key, offset in self.positions.items()])
        starts, whole = dict(self.positions), set[int]()
        entries: dict[int, list[Entry]] = {key: [] for key in starts}
        deadline = time.monotonic() + seconds_max
        while len(whole) < KEYS and time.monotonic() < deadline:
            for message in self._consumer.consume(500, 0.02):
                self._take(message, entries, whole)
        now_s = time.monotonic()
        return [
            Read(key, start, self.positions[key], tuple(entries[key]), key in whole, now_s)
            for key, start in starts.items()
        ]

    def _take(self, message: Any, entries: dict[int, list[Entry]], whole: set[int]) -> None:
        error, key, offset = message.error(), message.partition(), message.offset()
        if error is None:
            entries[key].append(Entry(offset, Value.parse(message.value())))
            self.positions[key] = offset + 1
            whole.discard(key)
        elif error.code() == KafkaError._PARTITION_EOF:
            self.positions[key] = offset
            whole.add(key)
        elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise KafkaException(error)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
