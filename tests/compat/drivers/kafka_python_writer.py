"""Transactions of kafka-python."""

from collections.abc import Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

from drivers.interface import Message
from harness.deadline import PATIENCE_S


class KafkaPythonWriter:
    """See `interface.Writer`."""

    def __init__(self, settings: dict[str, Any], transactional_id: str) -> None:
        self._producer = KafkaProducer(**settings, transactional_id=transactional_id)
        self._producer.init_transactions()
        self._is_open = False

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        sent = [self._sent(topic, message) for message in messages]
        self._producer.flush(PATIENCE_S)
        for future in sent:
            future.get(PATIENCE_S)

    def send(self, topic: str, message: Message) -> None:
        self._sent(topic, message)

    def _sent(self, topic: str, message: Message) -> Any:
        if not self._is_open:
            self._producer.begin_transaction()
            self._is_open = True
        return self._producer.send(topic, value=message.value, key=message.key, partition=message.partition)

    def write_offset(self, group: str, topic: str, offset: int) -> None:
        offsets = {TopicPartition(topic, 0): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group)

    def write_positions(self, consumer: KafkaConsumer) -> None:
        """Commit the consumer's positions in the open transaction."""
        positions = {place: consumer.position(place) for place in consumer.assignment()}
        offsets = {place: OffsetAndMetadata(offset, "", -1) for place, offset in positions.items()}
        self._producer.send_offsets_to_transaction(offsets, consumer.group_metadata())

    def end(self, *, commit: bool) -> None:
        self._is_open = False
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(0)
