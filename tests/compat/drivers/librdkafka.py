"""The client librdkafka through confluent-kafka."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from drivers.background import PolledMember
from drivers.interface import Assignment, Message, Received, with_group_protocol
from drivers.librdkafka_writer import LibrdkafkaWriter
from harness.deadline import PATIENCE_S
from harness.stock_client import records_given


def received(message: Any) -> Received:
    """Return a consumed message, or raise the error in its place."""
    if message.error() is not None:
        raise KafkaException(message.error())
    place = (message.topic(), message.partition(), message.offset(), message.timestamp()[1])
    return Received(*place, message.key(), message.value(), tuple(message.headers() or ()))


class LibrdkafkaMember(PolledMember):
    """See `interface.Member`."""

    def __init__(self, settings: dict[str, Any], topics: Sequence[str]) -> None:
        self._consumer = Consumer(settings)
        self._consumer.subscribe(list(topics))
        super().__init__()

    def poll(self) -> tuple[list[Received], Assignment]:
        records = [received(message) for message in records_given(self._consumer, 0.05)]
        return records, frozenset((place.topic, place.partition) for place in self._consumer.assignment())

    def commit_now(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class LibrdkafkaClient:
    """See `interface.Client`."""

    name = "librdkafka"

    def __init__(self, bootstrap: str) -> None:
        self.settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap}
        self._admin = AdminClient(self.settings)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
        acks: str = "all",
        **options: Any,
    ) -> None:
        chosen = {"compression.type": compression, "enable.idempotence": idempotent, "acks": acks, "linger.ms": 50}
        producer = Producer({**self.settings, **chosen, "message.timeout.ms": 300_000, **options})
        errors = []
        for message in messages:
            where: dict[str, Any] = {} if message.partition is None else {"partition": message.partition}
            when: dict[str, Any] = {} if message.timestamp_ms is None else {"timestamp": message.timestamp_ms}
            producer.produce(
                topic,
                message.value,
                message.key,
                headers=list(message.headers),
                on_delivery=lambda error, _: errors.append(error),
                **where,
                **when,
            )
        assert producer.flush(PATIENCE_S) == 0, "not all messages were acknowledged"
        for error in filter(None, errors):
            raise KafkaException(error)

    def consumer(self, **options: Any) -> Consumer:
        """Return a consumer with its own group id that reads from the beginning and never commits."""
        defaults = {"group.id": "nobody", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        return Consumer({**self.settings, **defaults, "fetch.wait.max.ms": 100, **options})

    def read_committed(self, topic: str, count: int) -> list[Received]:
        return self.read(topic, count, "read_committed")

    def writer(self, transactional_id: str, **options: Any) -> LibrdkafkaWriter:
        return LibrdkafkaWriter({**self.settings, **options}, transactional_id)

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int, *, commit: bool) -> None:
        writer = self.writer(transactional_id)
        consumer = self.consumer(**with_group_protocol({"group.id": group}))
        consumer.subscribe([source])
        while count > 0:
            records = [received(message) for message in consumer.consume(count, 0.2)]
            writer.write(target, [Message(record.value, partition=record.partition) for record in records])
            count -= len(records)
        writer.write_positions(consumer)
        writer.end(commit=commit)
        consumer.close()

    def read(self, topic: str, count: int, isolation: str = "read_uncommitted") -> list[Received]:
        consumer = self.consumer(**{"isolation.level": isolation})
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        records: list[Received] = []
        while len(records) < count:
            batch = consumer.consume(count - len(records), PATIENCE_S)
            if not batch:
                break
            records += [received(message) for message in batch]
        consumer.close()
        return records

    def join(self, group: str, member: str, topics: Sequence[str], **options: Any) -> LibrdkafkaMember:
        options, times = with_group_protocol(options), {"fetch.wait.max.ms": 100}
        if options.get("group.protocol") != "consumer":  # There the broker decides these times.
            times |= {"heartbeat.interval.ms": 300, "session.timeout.ms": 10_000}
        start = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
        settings = {**self.settings, **times, **start, "group.id": group, "client.id": member, **options}
        return LibrdkafkaMember(settings, topics)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        futures = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        offsets = futures[group].result(PATIENCE_S).topic_partitions
        return {place.partition: place.offset for place in offsets if place.topic == topic}

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        consumer = self.consumer()
        partitions = consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions
        asked = [TopicPartition(topic, partition, timestamp_ms) for partition in partitions]
        found = consumer.offsets_for_times(asked, timeout=PATIENCE_S)
        consumer.close()
        return {place.partition: place.offset for place in found}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        new = NewTopic(topic, num_partitions=partitions, config=dict(configs))
        self._admin.create_topics([new])[topic].result(PATIENCE_S)

    def create_partitions(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE_S)

    def topics(self) -> dict[str, int]:
        listed = self._admin.list_topics(timeout=PATIENCE_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in future.result(PATIENCE_S).items()}

    def alter_topic_config(self, topic: str, name: str, value: str) -> None:
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
        (future,) = self._admin.incremental_alter_configs([resource]).values()
        future.result(PATIENCE_S)

    def delete_topic(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(PATIENCE_S)

    def close(self) -> None:
        """Do nothing: no connection stays open."""
