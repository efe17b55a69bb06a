"""A program that copies a topic with librdkafka, each record in a transaction with the group's offsets.

    python -m exactly_once.copier BOOTSTRAP ID SOURCE TARGET PROTOCOL

It aborts and reads again if it may not commit, and ends with status 1 if librdkafka requires it.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from harness.deadline import PATIENCE_S

RECORDS_MAX: Final = 2_000


class Copier:
    """A consumer and a transactional producer, whose transactional id is the name."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        source: str,
        target: str,
        protocol: str,
        *,
        group: str = "",
        settings: Mapping[str, Any] = {},
    ) -> None:
        """Begin transactions and join the group, which has the name of the copier if none is given."""
        shared: dict[str, Any] = {**settings, "bootstrap.servers": bootstrap}
        self._target = target
        self._producer = Producer({**shared, "transactional.id": name, "linger.ms": 5})
        self._producer.init_transactions(PATIENCE_S)
        reading = {"group.id": group or name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        times = {"session.timeout.ms": 10_000} if protocol == "classic" else {}  # Otherwise the broker decides it.
        self._consumer = Consumer({**shared, **reading, **times, "group.protocol": protocol})
        self._consumer.subscribe([source])

    def run(self) -> None:
        """Copy until the process ends."""
        while True:
            self.turn()

    def turn(self, seconds_max: float = 0.2) -> int:
        """Copy the records that arrive now; return how many were committed. Raises KafkaException."""
        messages = [each for each in self._consumer.consume(RECORDS_MAX, seconds_max) if each.error() is None]
        if not messages:
            return 0
        try:
            self._copy(messages)
        except KafkaException as failure:
            error = failure.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            self._abort()
            return 0
        return len(messages)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()

    def _copy(self, messages: list[Any]) -> None:
        self._producer.begin_transaction()
        for message in messages:
            self._producer.produce(self._target, message.value(), partition=message.partition())
            self._producer.poll(0)
        positions = [place for place in self._consumer.position(self._consumer.assignment()) if place.offset >= 0]
        self._producer.send_offsets_to_transaction(positions, self._consumer.consumer_group_metadata(), PATIENCE_S)
        self._producer.commit_transaction(PATIENCE_S)

    def _abort(self) -> None:
        """Abort, and read again from the committed offsets."""
        self._producer.abort_transaction(PATIENCE_S)
        for place in self._consumer.committed(self._consumer.assignment(), PATIENCE_S):
            self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))


if __name__ == "__main__":
    Copier(*sys.argv[1:]).run()
