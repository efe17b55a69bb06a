"""An administrator who creates, grows, alters, trims, moves and deletes topics at random, and a writer to them."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final
from uuid import UUID

from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.topic_partition import TopicPartition
from simulation.clients import NONE, Client, Failed
from simulation.cluster import SimulatedCluster
from simulation.history import History
from simulation.topic_history import MIN_ISR, TopicHistory, Written

PRODUCE: Final = 0, 13
CREATE_TOPICS: Final = 19, 7
DELETE_TOPICS: Final = 20, 6
DELETE_RECORDS: Final = 21, 2
CREATE_PARTITIONS: Final = 37, 3
ALTER_CONFIGS: Final = 44, 1
REASSIGN: Final = 45, 0

KEPT: Final = "kept"
"""A topic that is never deleted; only this one is altered and trimmed by name, so that its state is known."""
WEAK: Final = "weak"
"""A topic that is created and deleted repeatedly, and may be left with one replica."""
FLEETING: Final = ("x0", "x1", WEAK)
PARTITIONS_MAX: Final = 6
TOPIC: Final = 2
SET: Final = 0
WRITERS: Final = 2
TRIES_MAX: Final = 100


class TopicChanges:
    """All changes of topics in a cluster with faults."""

    def __init__(
        self, cluster: SimulatedCluster, history: History, make_client: Callable[[str], Client], random: Random
    ) -> None:
        self._cluster = cluster
        self._history = TopicHistory(history)
        self._admin = make_client("admin")
        self._writers = [make_client(f"p{number}") for number in range(WRITERS)]
        self._random = random
        self._number = 0
        self._in_doubt: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Change topics until `stop`."""
        spawn = self._cluster.loop.spawn
        self._tasks = [spawn(self._admin.host, self._administer())]
        self._tasks += [spawn(client.host, self._write(client)) for client in self._writers]

    def stop(self) -> None:
        """Stop all requests."""
        for task in self._tasks:
            task.cancel()

    async def _administer(self) -> None:
        changes = [self._delete, self._grow, self._alter, self._trim, self._reassign]
        while True:
            with suppress(Failed):
                missing = [name for name in (KEPT, *FLEETING) if name not in self._topics()]
                if missing and self._random.random() < 0.5:
                    await self._create(self._random.choice(missing))
                elif self._topics():
                    await self._random.choice(changes)()
            await asyncio.sleep(self._random.expovariate(2))

    def _topics(self) -> dict[str, TopicDocument]:
        """Return the topics in the image of the broker that has seen most."""
        images = [each.node.image for each in self._cluster.brokers if each.node is not None]
        if not images:
            return {}
        topics = max(images, key=lambda image: image.revision).topics
        return {name: topics[name] for name in (KEPT, *FLEETING) if name in topics}

    def _some_topic(self) -> TopicDocument:
        return self._random.choice(list(self._topics().values()))

    async def _create(self, name: str) -> None:
        request = message_class("CreateTopicsRequest")
        count = self._random.randint(1, 2)
        self._cluster.note(f"create {name} with {count} partitions")
        topic = request.CreatableTopic(
            name=name, num_partitions=count, replication_factor=3, assignments=[], configs=[]
        )
        made = request(topics=[topic], timeout_ms=2000, validate_only=False)
        result = (await self._admin.any(CREATE_TOPICS, made)).topics[0]
        if result.error_code == NONE:
            self._history.created[result.topic_id] = name

    async def _delete(self) -> None:
        """Delete a topic by its id, so that no later topic with that name is deleted."""
        topic = self._some_topic()
        if topic.name == KEPT:
            return
        self._cluster.note(f"delete {topic.name}")
        self._history.asked_to_delete.add(topic.topic_id)
        request = message_class("DeleteTopicsRequest")
        made = request(topics=[request.DeleteTopicState(name=None, topic_id=topic.topic_id)], timeout_ms=2000)
        result = (await self._admin.any(DELETE_TOPICS, made)).responses[0]
        if result.error_code == NONE:
            self._history.deleted.add(topic.topic_id)

    async def _grow(self) -> None:
        topic = self._some_topic()
        count = len(topic.partitions) + self._random.randint(1, 2)
        if count > PARTITIONS_MAX:
            return
        self._cluster.note(f"grow {topic.name} to {count}")
        request = message_class("CreatePartitionsRequest")
        wanted = request.CreatePartitionsTopic(name=topic.name, count=count, assignments=None)
        made = request(topics=[wanted], timeout_ms=2000, validate_only=False)
        result = (await self._admin.any(CREATE_PARTITIONS, made)).results[0]
        if result.error_code == NONE and topic.name == KEPT:
            self._history.grown[KEPT] = count

    async def _alter(self) -> None:
        name = self._random.choice([KEPT, WEAK])
        if name not in self._topics():
            return
        value = self._random.choice(["2", "3"] if name == KEPT else ["1", "2"])
        self._cluster.note(f"alter {name} to {MIN_ISR}={value}")
        request = message_class("IncrementalAlterConfigsRequest")
        resource = request.AlterConfigsResource
        config = resource.AlterableConfig(name=MIN_ISR, config_operation=SET, value=value)
        made = request(
            resources=[resource(resource_type=TOPIC, resource_name=name, configs=[config])], validate_only=False
        )
        if name == WEAK:
            await self._admin.any(ALTER_CONFIGS, made)
            return
        self._history.settings.setdefault(KEPT, {None}).add(value)  # It counts even if the response is lost.
        try:
            result = (await self._admin.any(ALTER_CONFIGS, made)).responses[0]
        except Failed:
            self._in_doubt.add(value)
            raise
        if result.error_code == NONE:
            self._history.settings[KEPT] = {value, *self._in_doubt}

    async def _trim(self) -> None:
        """Delete records below a committed offset."""
        topic = self._topics().get(KEPT)
        if topic is None:
            return
        number = self._random.randrange(len(topic.partitions))
        key = TopicPartition(KEPT, number)
        leader = topic.partitions[number].leader
        committed = [each.log.high_watermark for each in self._replicas(key) if each.leader is not None]
        if leader < 0 or not committed:
            return
        offset = self._random.randint(0, committed[0])
        self._cluster.note(f"delete the records of {key} below {offset}")
        self._history.trimmed[key] = max(offset, self._history.trimmed.get(key, 0))
        request = message_class("DeleteRecordsRequest")
        wanted = request.DeleteRecordsTopic
        partition = wanted.DeleteRecordsPartition(partition_index=number, offset=offset)
        made = request(topics=[wanted(name=KEPT, partitions=[partition])], timeout_ms=2000)
        await self._admin.ask(f"b{leader}", DELETE_RECORDS, made)

    async def _reassign(self) -> None:
        topic = self._some_topic()
        number = self._random.randrange(len(topic.partitions))
        replicas = self._random.sample([each.broker_id for each in self._cluster.brokers], 3)
        self._cluster.note(f"reassign {topic.name}-{number} to {replicas}")
        request = message_class("AlterPartitionReassignmentsRequest")
        wanted = request.ReassignableTopic
        partition = wanted.ReassignablePartition(partition_index=number, replicas=replicas)
        made = request(topics=[wanted(name=topic.name, partitions=[partition])], timeout_ms=2000)
        await self._admin.any(REASSIGN, made)

    async def _write(self, client: Client) -> None:
        while True:
            await asyncio.sleep(client.random.expovariate(6))
            if topics := list(self._topics().values()):
                topic = client.random.choice(topics)
                with suppress(Failed):
                    await self._write_one(client, topic, client.random.randrange(len(topic.partitions)))

    async def _write_one(self, client: Client, topic: TopicDocument, number: int) -> bool:
        """Write one record; True if it was acknowledged. Raises Failed."""
        leader = topic.partitions[number].leader
        if leader < 0:
            return False
        self._number += 1
        value = f"{topic.topic_id.hex}/{self._number}".encode()
        made = _produce(topic.topic_id, number, bytes(encode_batch([Record(0, client.host.now_ms(), None, value)])))
        response = await client.ask(f"b{leader}", PRODUCE, made)
        result = response.responses[0].partition_responses[0]
        if result.error_code == NONE:
            self._history.wrote(Written(topic.topic_id, number, result.base_offset, value))
        return bool(result.error_code == NONE)

    def _replicas(self, key: TopicPartition) -> list[Any]:
        return [each for broker in self._cluster.brokers for each in broker.partitions() if each.topic_partition == key]

    async def check_writable(self) -> None:
        """Check, when all faults are healed, that every partition accepts a record, also the added ones."""
        for name in self._topics():
            for number in range(len(self._topics()[name].partitions)):
                if not await self._is_writable(name, number):
                    self._history.violation(f"{name}-{number} takes no records after all was mended")

    async def _is_writable(self, name: str, number: int) -> bool:
        for _ in range(TRIES_MAX):
            with suppress(Failed):
                if await self._write_one(self._writers[0], self._topics()[name], number):
                    return True
            await asyncio.sleep(0.1)
        return False

    def check_at_the_end(self) -> None:
        """Check that images, disks and records agree."""
        for broker in self._cluster.brokers:
            if broker.node is None:
                self._history.violation(f"{broker.name} is down after all was mended")
                continue
            self._history.check_image(broker.name, broker.node.image)
            self._history.check_broker(broker, broker.node.image)
            for partition in broker.partitions():
                if partition.leader is not None and partition.topic_partition.topic in (KEPT, *FLEETING):
                    self._history.check_records(partition)


def _produce(topic_id: UUID, partition: int, records: bytes) -> Any:
    request = message_class("ProduceRequest")
    topic = request.TopicProduceData
    data = topic.PartitionProduceData(index=partition, records=records)
    return request(
        transactional_id=None, acks=-1, timeout_ms=1500, topic_data=[topic(topic_id=topic_id, partition_data=[data])]
    )
