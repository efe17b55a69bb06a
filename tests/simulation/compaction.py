"""Compacted topics: writers of keys, an administrator who changes settings, and checks of the remaining records."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from uuid import UUID

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.leader_replica import FollowerReplica
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.logs import log_loader
from barnabas_broker.storage.logs.log import CompactionBounds, Log
from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_broker.wire.records import Record, decode_batch, encode_batch
from simulation.clients import NONE, Client, Failed
from simulation.cluster import SimulatedCluster
from simulation.history import OFFSETS_TOPIC, History
from simulation.topic_changes import ALTER_CONFIGS, CREATE_TOPICS, PRODUCE, SET, TOPIC

KEYED: Final = "keyed"
WILD: Final = "wild"
"""A topic with unclean elections, which truncate compacted logs: records may be lost, but replicas must agree."""
COMPACTED: Final = KEYED, WILD, OFFSETS_TOPIC
CLEANED_OFTEN: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "internal.segment.bytes": "300",  # A round then makes many new segments.
}
CONFIGS: Final = {
    KEYED: CLEANED_OFTEN,
    WILD: CLEANED_OFTEN | {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"},
}
ACKS: Final = {KEYED: -1, WILD: 1}
KEYS: Final = 4
"""The number of keys in use at a time."""
VALUES_EACH: Final = 6
"""The average number of values of a key; after these the key is left for the check at the end."""
TOMBSTONE_SHARE: Final = 0.2
ALTERED: Final = {
    "cleanup.policy": ("compact", "compact,delete"),
    "min.compaction.lag.ms": ("0", "500"),
    "min.cleanable.dirty.ratio": ("0.01", "0.5"),
    "internal.segment.bytes": ("300", "600"),
}
"""The settings that the administrator changes while clients work."""
CLEANER_SETTINGS: Final = {"log.cleaner.backoff.ms": "300"}


class Latest(NamedTuple):
    """The last value of a key in a log, None for a tombstone."""

    offset: int
    value: bytes | None


def latest_by_key(partition: Partition) -> dict[bytes, Latest]:
    """Return what a consumer of the whole log keeps, tombstones too."""
    found: dict[bytes, Latest] = {}
    for segment in partition.log.segments:
        data = segment.file.read_at(0, segment.size_bytes)
        position = 0
        while len(data) - position >= HEADER_BYTES:
            header = parse_header(data, position)
            for record in decode_batch(data, position, header, 1 << 20):
                value = None if record.value is None else bytes(record.value)
                found[bytes(record.key or b"")] = Latest(header.base_offset + record.offset_delta, value)
            position += header.size_bytes
    return found


class Written:
    """One key, to which one writer writes one value after the other."""

    def __init__(self) -> None:
        self.sent: dict[int, bytes | None] = {}
        self.acknowledged: tuple[int, int] | None = None
        """The number of the last acknowledged value, and its offset."""
        self.in_doubt: set[int] = set()

    def why_wrong(self, latest: Latest | None) -> str | None:
        """Return why a log may not end with this value of the key, or None if it may."""
        if self.acknowledged is None:
            return None
        number, offset = self.acknowledged
        late = {each for each in self.in_doubt if each < number}  # They may arrive after the last one.
        possible = late | {each for each in self.sent if each >= number}
        if latest is None:
            is_deleted = any(self.sent[each] is None for each in possible)
            return None if is_deleted else f"offset {offset} was acknowledged, and nothing is there"
        if latest.offset < offset:
            return f"offset {offset} was acknowledged, and {latest} is the last"
        if latest.value not in {self.sent[each] for each in possible}:
            return f"offset {offset} was acknowledged last, and {latest} is there"
        return None


class Compaction:
    """The compaction of two topics, beside `__consumer_offsets`, which is compacted, too."""

    def __init__(
        self, cluster: SimulatedCluster, history: History, make_client: Callable[[str], Client], random: Random
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._admin = make_client("admin")
        self._writers = {topic: make_client("p0") for topic in CONFIGS}
        self._random = random
        self._number = 0
        self._written: dict[tuple[str, bytes], Written] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Write and alter until `stop`."""
        spawn = self._cluster.loop.spawn
        self._tasks = [spawn(self._admin.host, self._administer())]
        self._tasks += [spawn(client.host, self._write(client, topic)) for topic, client in self._writers.items()]

    def stop(self) -> None:
        """Stop all writers and the administrator."""
        for task in self._tasks:
            task.cancel()

    async def _administer(self) -> None:
        while True:
            with suppress(Failed):
                missing = [name for name in CONFIGS if (name, 0) not in self._cluster.states()]
                if missing:
                    await self._create(missing[0])
                else:
                    await self._alter(self._random.choice(list(CONFIGS)))
            await asyncio.sleep(self._random.expovariate(1))

    async def _create(self, topic_name: str) -> None:
        request = message_class("CreateTopicsRequest")
        config, configs = request.CreatableTopic.CreatableTopicConfig, CONFIGS[topic_name]
        wanted = [config(name=name, value=value) for name, value in configs.items()]
        topic = request.CreatableTopic(
            name=topic_name, num_partitions=1, replication_factor=3, assignments=[], configs=wanted
        )
        await self._admin.any(CREATE_TOPICS, request(topics=[topic], timeout_ms=2000, validate_only=False))

    async def _alter(self, topic_name: str) -> None:
        name = self._random.choice(sorted(ALTERED))
        value = self._random.choice(ALTERED[name])
        self._cluster.note(f"alter {topic_name} to {name}={value}")
        request = message_class("IncrementalAlterConfigsRequest")
        resource = request.AlterConfigsResource
        config = resource.AlterableConfig(name=name, config_operation=SET, value=value)
        wanted = resource(resource_type=TOPIC, resource_name=topic_name, configs=[config])
        await self._admin.any(ALTER_CONFIGS, request(resources=[wanted], validate_only=False))

    async def _write(self, client: Client, topic_name: str) -> None:
        while True:
            await asyncio.sleep(client.random.expovariate(8))
            with suppress(Failed):
                await self._write_one(client, topic_name)

    def _topic(self, name: str) -> tuple[UUID, int] | None:
        """Return the topic's id and leader, as some broker knows them."""
        for broker in self._cluster.brokers:
            document = broker.node.image.topics.get(name) if broker.node is not None else None
            if document is not None and document.partitions[0].leader >= 0:
                return document.topic_id, document.partitions[0].leader
        return None

    async def _write_one(self, client: Client, topic_name: str) -> None:
        """Write one record with one key. Raises Failed."""
        topic = self._topic(topic_name)
        if topic is None:
            return
        self._number = number = self._number + 1
        key = f"key {number // VALUES_EACH + client.random.randrange(KEYS)}".encode()
        value = None if client.random.random() < TOMBSTONE_SHARE else f"{number}".encode()
        written = self._written.setdefault((topic_name, key), Written())
        written.sent[number] = value
        written.in_doubt.add(number)
        batch = encode_batch([Record(0, client.host.now_ms(), key, value)])
        response = await client.ask(f"b{topic[1]}", PRODUCE, _produce(topic[0], ACKS[topic_name], bytes(batch)))
        result = response.responses[0].partition_responses[0]
        if result.error_code == NONE:
            written.acknowledged = number, result.base_offset
            written.in_doubt.discard(number)

    def check_at_the_end(self) -> None:
        """Check that each replica has the last acknowledged value of each key, or a later one."""
        if self._history.is_told_lost(KEYED, 0):
            return
        for broker in self._cluster.brokers:
            for partition in broker.partitions():
                if partition.topic_partition.topic == KEYED:
                    self._check_acknowledged(broker.name, latest_by_key(partition))

    def _check_acknowledged(self, name: str, latest: dict[bytes, Latest]) -> None:
        for (topic, key), written in self._written.items():
            why = written.why_wrong(latest.get(key)) if topic == KEYED else None
            if why is not None:
                self._history.violation(f"compaction: {key!r} of {topic} on {name}: {why}")


@contextmanager
def gaps_are_never_forgotten(history: History) -> Iterator[None]:
    """Have followers remember what they fetched with gaps (brokers forget: docs/explanation/storage-guarantees.md).

    They remember it over a crash, too. One that has not caught up fetches all again from the next leader. If it leads
    itself, other replicas may have values that it lacks, and the history notes it.
    """
    load, append, lead = log_loader._load, FollowerReplica.append, Partition._lead
    gaps = dict[tuple[FileSystem, str], _Gap]()

    def append_with_gaps(
        follower: FollowerReplica, records: memoryview, epoch: int, high_watermark: int, start_offset: int, now_ms: int
    ) -> None:
        log, begin = follower.log, follower.log.log_start_offset
        before, gap = log.compaction.superseded_until, gaps.get((log.files, log.directory))
        if gap and gap.is_left_open(log, epoch):
            follower.out_of_range(begin, begin, now_ms)
            return
        append(follower, records, epoch, high_watermark, start_offset, now_ms)
        if log.compaction.superseded_until > before:
            gaps[log.files, log.directory] = _Gap(log.compaction, high_watermark, epoch)

    def load_with_gaps(*arguments: Any) -> Log:
        log = load(*arguments)
        gap = gaps.get((log.files, log.directory))
        if gap is not None and log.segments.size_bytes:
            log.compaction.superseded_below(gap.end_offset)
            gaps[log.files, log.directory] = gap._replace(bounds=log.compaction)
        return log

    def lead_with_gaps(partition: Partition, state: PartitionState, now_ms: int) -> None:
        gap = gaps.get((partition.log.files, partition.log.directory))
        if gap and gap.is_left_open(partition.log, state.leader_epoch):
            history.led_with_gaps.add(partition.topic_partition)
        lead(partition, state, now_ms)

    with (
        patch.object(FollowerReplica, "append", append_with_gaps),
        patch.object(log_loader, "_load", load_with_gaps),
        patch.object(Partition, "_lead", lead_with_gaps),
    ):
        yield


class _Gap(NamedTuple):
    """What a follower fetched with gaps: it lacks records that newer ones below `until` supersede on the leader."""

    bounds: CompactionBounds
    until: int
    leader_epoch: int

    @property
    def end_offset(self) -> int:
        """Return the end of the gap; a truncation of the log has lowered it."""
        return min(self.bounds.superseded_until, self.until)

    def is_left_open(self, log: Log, leader_epoch: int) -> bool:
        """True if there is a later leader, which may lack the newer records, and the log has not caught up."""
        is_of_log = self.bounds is log.compaction
        return is_of_log and leader_epoch > self.leader_epoch and log.log_end_offset < self.end_offset


def _produce(topic_id: UUID, acks: int, records: bytes) -> Any:
    request = message_class("ProduceRequest")
    topic = request.TopicProduceData
    data = topic.PartitionProduceData(index=0, records=records)
    return request(
        transactional_id=None, acks=acks, timeout_ms=1500, topic_data=[topic(topic_id=topic_id, partition_data=[data])]
    )
