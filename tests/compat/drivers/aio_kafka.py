"""The client aiokafka, on an event loop in a separate thread."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from drivers.aio_kafka_writer import AiokafkaWriter
from drivers.background import PolledMember
from drivers.event_loop import EventLoop
from drivers.interface import Assignment, Message, Received
from harness.deadline import PATIENCE_S


def received(record: Any) -> Received:
    """Return a consumed record."""
    place = (record.topic, record.partition, record.offset, record.timestamp)
    return Received(*place, record.key, record.value, tuple(record.headers))


def _raise_errors(answers: Sequence[Sequence[Any]], code_index: int) -> None:
    for answer in answers:
        if answer[code_index]:
            raise for_code(answer[code_index])(str(answer))


class AiokafkaMember(PolledMember):
    """See `interface.Member`."""

    def __init__(self, loop: EventLoop, consumer: AIOKafkaConsumer) -> None:
        self._loop = loop
        self._consumer = consumer
        super().__init__()

    def poll(self) -> tuple[list[Received], Assignment]:
        batches = self._loop.run(self._consumer.getmany(timeout_ms=50)).values()
        assignment = frozenset((place.topic, place.partition) for place in self._consumer.assignment())
        return [received(record) for batch in batches for record in batch], assignment

    def commit_now(self) -> None:
        self._loop.run(self._consumer.commit())

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


class AiokafkaClient:
    """See `interface.Client`."""

    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap_servers": bootstrap}
        self._loop = EventLoop()
        self._admin = self._loop.run(self._start(AIOKafkaAdminClient))

    async def _start(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        made = kind(*arguments, **self._settings, **options)
        await made.start()
        return made

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
        acks: str = "all",
    ) -> None:
        codec = None if compression == "none" else compression
        required = acks if acks == "all" else int(acks)
        settings = {"compression_type": codec, "enable_idempotence": idempotent, "acks": required, "linger_ms": 50}
        self._loop.run(self._send(topic, messages, settings))

    async def _send(self, topic: str, messages: Sequence[Message], settings: dict[str, Any]) -> None:
        producer = await self._start(AIOKafkaProducer, **settings)
        try:
            sent = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    partition=message.partition,
                    timestamp_ms=message.timestamp_ms,
                    headers=list(message.headers),
                )
                for message in messages
            ]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()

    def read(self, topic: str, count: int) -> list[Received]:
        return list(self._loop.run(self._read(topic, count)))

    def read_committed(self, topic: str, count: int) -> list[Received]:
        return list(self._loop.run(self._read(topic, count, isolation_level="read_committed")))

    def writer(self, transactional_id: str) -> AiokafkaWriter:
        return AiokafkaWriter(self._loop, self._settings, transactional_id)

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int, *, commit: bool) -> None:
        writer = self.writer(transactional_id)
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "isolation_level": "read_committed"}
        consumer = self._loop.run(self._make(source, group_id=group, **options))
        while count > 0:
            batches = self._loop.run(consumer.getmany(timeout_ms=100)).values()
            messages = [Message(record.value, partition=record.partition) for batch in batches for record in batch]
            writer.write(target, messages)
            count -= len(messages)
        writer.write_positions(consumer, group)
        writer.end(commit=commit)
        writer.close()
        self._loop.run(consumer.stop())

    async def _read(self, topic: str, count: int, **options: Any) -> list[Received]:
        start = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 100}
        consumer = await self._start(AIOKafkaConsumer, topic, **start, **options)
        records: list[Received] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count and time.monotonic() < deadline:
            batches = (await consumer.getmany(timeout_ms=200)).values()
            records += [received(record) for batch in batches for record in batch]
        await consumer.stop()
        return records

    def join(self, group: str, member: str, topics: Sequence[str]) -> AiokafkaMember:
        times = {"heartbeat_interval_ms": 300, "session_timeout_ms": 45_000, "fetch_max_wait_ms": 100}
        start = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        # The constructor needs a running loop; joining continues in the background, and `start` waits for it.
        made = self._loop.run(self._make(*topics, group_id=group, client_id=member, **times, **start))
        return AiokafkaMember(self._loop, made)

    async def _make(self, *topics: str, **options: Any) -> AIOKafkaConsumer:
        made: AIOKafkaConsumer = await self._start(AIOKafkaConsumer, *topics, **options)
        return made

    def committed(self, group: str, topic: str) -> dict[int, int]:
        offsets = self._loop.run(self._admin.list_consumer_group_offsets(group))
        return {place.partition: offset.offset for place, offset in offsets.items() if place.topic == topic}

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        return dict(self._loop.run(self._offsets_for_time(topic, timestamp_ms)))

    async def _offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        consumer = await self._start(AIOKafkaConsumer, topic)
        places = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)]
        found = await consumer.offsets_for_times(dict.fromkeys(places, timestamp_ms))
        await consumer.stop()
        return {place.partition: -1 if offset is None else offset.offset for place, offset in found.items()}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
        _raise_errors(self._loop.run(self._admin.create_topics([new])).topic_errors, 1)

    def create_partitions(self, topic: str, partitions: int) -> None:
        self._loop.run(self._admin.create_partitions({topic: NewPartitions(partitions)}))

    def topics(self) -> dict[str, int]:
        described = self._loop.run(self._admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        (answer,) = self._loop.run(self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)]))
        _raise_errors(answer.resources, 0)
        return {entry[0]: entry[1] for entry in answer.resources[0][4]}

    def alter_topic_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})
        (answer,) = self._loop.run(self._admin.alter_configs([resource]))
        _raise_errors(answer.resources, 0)

    def delete_topic(self, topic: str) -> None:
        _raise_errors(self._loop.run(self._admin.delete_topics([topic])).topic_error_codes, 1)

    def close(self) -> None:
        self._loop.run(self._admin.close())
        self._loop.close()
