"""A reader of the committed numbers of a topic, which compares them with the expected ones."""

import time

from confluent_kafka import Consumer, TopicPartition


class Reader:
    """Reads the numbers of a topic in order of arrival."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._numbers: list[list[int]] = [[] for _ in range(partitions)]

    @property
    def count(self) -> int:
        """Return how many records were read."""
        return sum(map(len, self._numbers))

    def read_on(self, seconds: float) -> None:
        """Read the records that arrive within this time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self._consumer.consume(10_000, 0.2):
                if message.error() is None:
                    self._numbers[message.partition() or 0].append(int(message.value() or b""))

    def differences(self, records: int) -> list[str]:
        """Return the problems: the numbers below `records` should be in the partitions in turn."""
        wrong = []
        for partition, found in enumerate(self._numbers):
            expected = list(range(partition, records, len(self._numbers)))
            if found != expected:
                lost, twice = set(expected) - set(found), len(found) - len(set(found))
                wrong.append(f"partition {partition}: {len(lost)} lost, {twice} twice of {len(found)}, or out of order")
        return wrong
