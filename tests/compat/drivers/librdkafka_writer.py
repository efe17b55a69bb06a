"""Transactions of librdkafka."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from drivers.interface import Message
from harness.deadline import PATIENCE_S


class LibrdkafkaWriter:
    """See `interface.Writer`."""

    def __init__(self, settings: dict[str, Any], transactional_id: str) -> None:
        self._settings = settings
        self._producer = Producer({**settings, "transactional.id": transactional_id, "linger.ms": 5})
        self._producer.init_transactions(PATIENCE_S)
        self._is_open = False

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        for message in messages:
            self.send(topic, message)
        assert self._producer.flush(PATIENCE_S) == 0, "not all messages were acknowledged"

    def send(self, topic: str, message: Message) -> None:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        where: dict[str, Any] = {} if message.partition is None else {"partition": message.partition}
        self._producer.produce(topic, message.value, message.key, **where)

    def write_offset(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({**self._settings, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        consumer.close()
        self._producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], metadata, PATIENCE_S)

    def write_positions(self, consumer: Consumer) -> None:
        """Commit the consumer's positions in the open transaction."""
        positions = consumer.position(consumer.assignment())
        read = [place for place in positions if place.offset >= 0]
        self._producer.send_offsets_to_transaction(read, consumer.consumer_group_metadata(), PATIENCE_S)

    def end(self, *, commit: bool) -> None:
        self._is_open = False
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)(PATIENCE_S)

    def close(self) -> None:
        """Do nothing: no connection stays open."""
