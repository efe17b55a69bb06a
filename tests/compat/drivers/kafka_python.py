"""The client kafka-python."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic

from drivers.background import PolledMember
from drivers.interface import Assignment, Message, Received
from drivers.kafka_python_writer import KafkaPythonWriter
from harness.deadline import PATIENCE_S


def received(record: Any) -> Received:
    """Return a consumed record."""
    place = (record.topic, record.partition, record.offset, record.timestamp)
    return Received(*place, record.key, record.value, tuple(record.headers))


class KafkaPythonMember(PolledMember):
    """See `interface.Member`."""

    def __init__(self, consumer: KafkaConsumer, topics: Sequence[str]) -> None:
        self._consumer = consumer
        consumer.subscribe(list(topics))
        super().__init__()

    def poll(self) -> tuple[list[Received], Assignment]:
        batches = self._consumer.poll(timeout_ms=50).values()
        assignment = frozenset((place.topic, place.partition) for place in self._consumer.assignment())
        return [received(record) for batch in batches for record in batch], assignment

    def commit_now(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonClient:
    """See `interface.Client`."""

    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap_servers": bootstrap}
        self._admin = KafkaAdminClient(**self._settings)

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
        producer = KafkaProducer(**self._settings, **settings)
        sent = [
            producer.send(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                partition=message.partition,
                timestamp_ms=message.timestamp_ms,
            )
            for message in messages
        ]
        producer.flush(PATIENCE_S)
        for future in sent:
            future.get(PATIENCE_S)
        producer.close()

    def _consumer(self, **options: Any) -> KafkaConsumer:
        start = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
        return KafkaConsumer(**self._settings, **start, fetch_max_wait_ms=100, **options)

    def writer(self, transactional_id: str) -> KafkaPythonWriter:
        return KafkaPythonWriter(self._settings, transactional_id)

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int, *, commit: bool) -> None:
        writer = self.writer(transactional_id)
        consumer = self._consumer(group_id=group, isolation_level="read_committed")
        consumer.subscribe([source])
        while count > 0:
            batches = consumer.poll(timeout_ms=200).values()
            messages = [Message(record.value, partition=record.partition) for batch in batches for record in batch]
            writer.write(target, messages)
            count -= len(messages)
        writer.write_positions(consumer)
        writer.end(commit=commit)
        writer.close()
        consumer.close()

    def read_committed(self, topic: str, count: int) -> list[Received]:
        return self.read(topic, count, isolation_level="read_committed")

    def read(self, topic: str, count: int, **options: Any) -> list[Received]:
        consumer = self._consumer(**options)
        consumer.assign([TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)])
        consumer.seek_to_beginning()
        records: list[Received] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(records) < count and time.monotonic() < deadline:
            batches = consumer.poll(timeout_ms=200).values()
            records += [received(record) for batch in batches for record in batch]
        consumer.close()
        return records

    def join(self, group: str, member: str, topics: Sequence[str]) -> KafkaPythonMember:
        times = {"heartbeat_interval_ms": 300, "session_timeout_ms": 45_000}
        return KafkaPythonMember(self._consumer(group_id=group, client_id=member, **times), topics)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        offsets = self._admin.list_group_offsets({group: None})[group]
        return {place.partition: offset.offset for place, offset in offsets.items() if place.topic == topic}

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        consumer = self._consumer()
        places = [TopicPartition(topic, partition) for partition in consumer.partitions_for_topic(topic)]
        found = consumer.offsets_for_times(dict.fromkeys(places, timestamp_ms))
        consumer.close()
        return {place.partition: -1 if offset is None else offset.offset for place, offset in found.items()}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self._admin.create_topics([NewTopic(topic, partitions, -1, topic_configs=dict(configs))])

    def create_partitions(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions({topic: NewPartitions(partitions)})

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        described = self._admin.describe_configs([resource], config_filter="all")["topic"][topic]
        return {name: entry["value"] for name, entry in described.items()}

    def alter_topic_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={name: value})
        assert self._admin.alter_configs([resource]) == {"topic": {topic: "OK"}}

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])

    def close(self) -> None:
        self._admin.close()
