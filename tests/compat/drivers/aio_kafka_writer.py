"""Transactions of aiokafka; its methods run on the loop of the client."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from drivers.event_loop import EventLoop
from drivers.interface import Message


async def started(settings: dict[str, Any], transactional_id: str) -> AIOKafkaProducer:
    """Return a producer that has its epoch. The constructor needs a running loop."""
    producer = AIOKafkaProducer(**settings, transactional_id=transactional_id)
    await producer.start()
    return producer


async def send(producer: AIOKafkaProducer, topic: str, messages: Sequence[Message]) -> None:
    """Send all messages, and wait for every acknowledgement."""
    sent = [await producer.send(topic, each.value, each.key, partition=each.partition) for each in messages]
    await asyncio.gather(*sent)


async def send_positions(producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, group: str) -> None:
    """Commit the consumer's positions in the open transaction."""
    positions = {place: await consumer.position(place) for place in consumer.assignment()}
    await producer.send_offsets_to_transaction(positions, group)


class AiokafkaWriter:
    """See `interface.Writer`."""

    def __init__(self, loop: EventLoop, settings: dict[str, Any], transactional_id: str) -> None:
        self._loop = loop
        self._producer = loop.run(started(settings, transactional_id))
        self._is_open = False

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        self._begin()
        self._loop.run(send(self._producer, topic, messages))

    def send(self, topic: str, message: Message) -> None:
        self._begin()
        self._loop.run(self._producer.send(topic, message.value, message.key, partition=message.partition))

    def _begin(self) -> None:
        if not self._is_open:
            self._loop.run(self._producer.begin_transaction())
            self._is_open = True

    def write_offset(self, group: str, topic: str, offset: int) -> None:
        self._loop.run(self._producer.send_offsets_to_transaction({TopicPartition(topic, 0): offset}, group))

    def write_positions(self, consumer: AIOKafkaConsumer, group: str) -> None:
        """Commit the consumer's positions in the open transaction."""
        self._loop.run(send_positions(self._producer, consumer, group))

    def end(self, *, commit: bool) -> None:
        self._is_open = False
        ended = self._producer.commit_transaction() if commit else self._producer.abort_transaction()
        self._loop.run(ended)

    def close(self) -> None:
        self._loop.run(self._producer.stop())
