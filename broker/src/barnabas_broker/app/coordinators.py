"""The construction and the start of the coordinators of groups, transactions and share-partitions."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, Final
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas_broker.coordinators.groups.shard import GroupEnvironment
from barnabas_broker.coordinators.modern.shard import ModernEnvironment
from barnabas_broker.coordinators.modern.targets import KnownTopic
from barnabas_broker.coordinators.runtime.peer_requests import LinkEnvironment
from barnabas_broker.coordinators.runtime.shard import Runtime, RuntimeEnvironment
from barnabas_broker.coordinators.runtime.turns import Turns
from barnabas_broker.coordinators.share.share_groups import ShareEnvironment
from barnabas_broker.coordinators.share_delivery.dead_letters import (
    DeadLetterEnvironment,
    DeadLetterWriter,
    PartitionClient,
)
from barnabas_broker.coordinators.share_delivery.delivery import DeliveryEnvironment, ShareDelivery
from barnabas_broker.coordinators.share_state.persister import ShareCoordinator, SharePersister
from barnabas_broker.coordinators.share_state.shard import ShareStateCounts, ShareStateEnvironment
from barnabas_broker.coordinators.transactions.coordinator import (
    ProducerIds,
    TransactionCoordinator,
    TransactionEnvironment,
)
from barnabas_broker.coordinators.transactions.decisions import TransactionCounts
from barnabas_broker.coordinators.transactions.gate import TransactionGate
from barnabas_broker.coordinators.transactions.marker_sender import MarkerSender, state_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.create_topics import NOT_COMPACTED, NewTopic, is_compacted
from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import (
    GROUP_VERSION,
    TopicDocument,
    has_dead_letters,
    has_share_groups,
    transaction_version,
)
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.replication.other_brokers import Links
from barnabas_broker.replication.record_log import RecordLog
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.wire.framing import FileSlice
from barnabas_broker.wire.record_batch import Codec
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.group_configs import ShareGroupConfig, effective_group_config, effective_share_config
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE, TopicIdPartition

log = logging.getLogger(__name__)

_NO_CONFIGS: Final[Mapping[str, str]] = {}
_KNOWN_GROUPS_MAX: Final = 10_000
_WRITE_TIMEOUT_MS: Final = 30_000
"""The timeout in ms for writing a record of a transaction, as long as Kafka's request.timeout.ms."""


class CoordinatorWorld(msgspec.Struct, frozen=True):
    """The dependencies of the coordinators of groups, transactions and share-partitions."""

    config: BrokerConfig
    image: MetadataImage
    clock: Clock
    timers: Timers
    replicas: ReplicaManager
    links: Links
    producer_ids: ProducerIds
    is_awake: Callable[[], bool]
    new_id: Callable[[], str]
    spawn: Callable[[Coroutine[object, object, None]], object]
    """A function that runs a coroutine as a task and logs its exceptions."""
    catch_up: Callable[[], Awaitable[None]]
    """A function that waits until the image is as new as the metadata store was at the call."""
    create_topics: Callable[[Collection[str]], Awaitable[object]]
    """A function that creates internal topics with the configs that their coordinators need."""


def _has_consumer_groups(image: MetadataImage) -> bool:
    return image.features.get(GROUP_VERSION, 0) > 0


CREATED_MAX: Final = 100
"""The new topics that are known for a while, so that they alone are matched with regular expressions."""


class ImageTopics:
    """The topics of the metadata image, with a version that rises only with changes that consumer groups look at."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._version = 0
        self._partition_counts = {name: len(topic.partitions) for name, topic in image.topics.items()}
        self._created: deque[tuple[int, str]] = deque()
        """The last topics that were created, each with the version that it began."""
        self._forgotten = 0
        """The latest version whose new topic is no longer known."""
        image.subscribe(self._changed)

    def _changed(self, change: ImageChange) -> None:
        counts = self._partition_counts
        for topic in change.deleted:
            counts.pop(topic.name, None)
        for topic in (*change.created, *change.changed):
            self._version += counts.get(topic.name) != len(topic.partitions)
            if topic.name not in counts:
                self._created.append((self._version, topic.name))
            counts[topic.name] = len(topic.partitions)
        self._version += bool(change.deleted)
        while len(self._created) > CREATED_MAX:
            self._forgotten, _ = self._created.popleft()

    def created_since(self, version: int) -> Collection[str] | None:
        """Return the names of the topics that were created since a version; None if they are no longer known."""
        if version < self._forgotten:
            return None
        since = takewhile(lambda each: each[0] > version, reversed(self._created))
        return [name for _, name in since]

    def version(self) -> int:
        """Return a number that rises whenever a topic is created or deleted, or gets partitions."""
        return self._version

    def find(self, name: str) -> KnownTopic | None:
        """Return the topic with this name, or None."""
        topic = self._image.topics.get(name)
        return None if topic is None else KnownTopic(topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._image.topic_name(topic_id)

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return self._image.topics.keys()


def make_groups(world: CoordinatorWorld, persister: SharePersister) -> GroupCoordinator:
    """Make the group coordinator, which leads no partition yet."""
    config, image = world.config, world.image
    codec, read_bytes = config.offsets_topic_compression_codec, config.offsets_load_buffer_size
    environment = GroupEnvironment(
        config,
        RecordLog(CONSUMER_OFFSETS, world.replicas, world.clock, codec, read_bytes),
        world.clock,
        world.timers,
        deleted_topics=lambda: dict(image.tombstones),
        is_awake=world.is_awake,
        new_id=world.new_id,
        modern=ModernEnvironment(
            ImageTopics(image),
            lambda group: effective_group_config(image.group_configs.get(group, {}), config),
            lambda: _has_consumer_groups(image),
        ),
        share=ShareEnvironment(
            lambda group: effective_share_config(image.group_configs.get(group, {}), config),
            lambda: has_share_groups(image.features),
            persister,
        ),
    )
    return GroupCoordinator(environment, config.offsets_topic_num_partitions)


class DeliveryWorld(msgspec.Struct, frozen=True):
    """The dependencies of the delivery of share groups, beside those of all coordinators."""

    persister: SharePersister
    purgatory: Purgatory
    links: LinkEnvironment
    current_config: Callable[[], BrokerConfig]
    is_cached: Callable[[FileSlice], bool]
    writer: MetadataWriter


class DeliveryParts(msgspec.Struct, frozen=True):
    """The delivery of share groups, and the client that writes their dead letters."""

    delivery: ShareDelivery
    client: PartitionClient


def make_delivery(world: CoordinatorWorld, of_delivery: DeliveryWorld) -> DeliveryParts:
    """Make the delivery of share groups, which has no share partition yet."""
    image, current_config = world.image, of_delivery.current_config
    client = PartitionClient(
        world.config.broker_id, world.replicas, world.clock, of_delivery.links, of_delivery.is_cached
    )

    async def create_topic(topic: NewTopic) -> TopicDocument | ApiError:
        return (await of_delivery.writer.create_topics([topic]))[topic.name]

    writer = DeadLetterWriter(
        DeadLetterEnvironment(
            image,
            world.replicas,
            client,
            world.clock,
            asyncio.sleep,
            world.spawn,
            current_config,
            create_topic,
            of_delivery.is_cached,
        )
    )
    environment = DeliveryEnvironment(
        of_delivery.persister,
        world.replicas,
        image,
        of_delivery.purgatory,
        world.clock,
        world.timers,
        world.spawn,
        GroupConfigs(image, current_config).of,
        lambda: has_dead_letters(image.features),
        lambda: int(str(current_config().value("group.share.max.share.sessions"))),
        of_delivery.is_cached,
    )
    return DeliveryParts(ShareDelivery(environment, writer.write), client)


class GroupConfigs:
    """The settings in effect in share groups, which are computed again only after a change."""

    def __init__(self, image: MetadataImage, current_config: Callable[[], BrokerConfig]) -> None:
        self._image = image
        self._current_config = current_config
        self._known: dict[str, tuple[object, object, ShareGroupConfig]] = {}

    def of(self, group_id: str) -> ShareGroupConfig:
        """Return the settings of a group."""
        overrides, config = self._image.group_configs.get(group_id, _NO_CONFIGS), self._current_config()
        known = self._known.get(group_id)
        if known is not None and known[0] is overrides and known[1] is config:
            return known[2]
        if len(self._known) >= _KNOWN_GROUPS_MAX:
            self._known.clear()
        found = effective_share_config(overrides, config)
        self._known[group_id] = (overrides, config, found)
        return found


class TransactionParts(msgspec.Struct, frozen=True):
    """The transaction coordinator, the check before transactional appends (`gate`), and the sender of markers.

    `links` sends the requests of coordinators to other brokers.
    """

    coordinator: TransactionCoordinator
    gate: TransactionGate
    markers: MarkerSender
    links: LinkEnvironment

    def close(self) -> None:
        """Stop the requests to other brokers."""
        self.gate.close()
        self.markers.queues.close()


def make_transactions(world: CoordinatorWorld) -> TransactionParts:
    """Make the transaction coordinator, which leads no partition yet."""
    config, image, clock, timers = world.config, world.image, world.clock, world.timers
    read_bytes = config.transaction_state_log_load_buffer_size
    of_links = LinkEnvironment(
        world.links, world.spawn, asyncio.timeout, clock, f"broker-{config.broker_id}-txn-marker-sender"
    )
    counts = TransactionCounts()
    markers = MarkerSender(of_links, image, timers, counts, world.catch_up)
    environment = TransactionEnvironment(
        config,
        clock,
        timers,
        markers.send,
        lambda: transaction_version(image.features),
        lambda take: world.spawn(_ask_new_id(world.producer_ids, take)),
        counts,
        knows=lambda partition: state_of(image, partition) is not None,
    )
    of_runtime = RuntimeEnvironment(
        TRANSACTION_STATE,
        RecordLog(TRANSACTION_STATE, world.replicas, clock, Codec.NONE, read_bytes),
        clock,
        timers,
        Turns(timers, clock),
        world.is_awake,
        _WRITE_TIMEOUT_MS,
    )
    coordinator = TransactionCoordinator(environment, of_runtime, config.transaction_state_log_num_partitions)
    gate = TransactionGate(config.broker_id, of_links, image, coordinator, asyncio.sleep)
    return TransactionParts(coordinator, gate, markers, of_links)


async def _ask_new_id(producer_ids: ProducerIds, take: Callable[[int], object]) -> None:
    try:
        take(await producer_ids.next_id())
    except ApiError:
        return  # The next check of transaction timeouts requests a producer id again.


class ShareParts(msgspec.Struct, frozen=True):
    """The share coordinator, and the persister that asks the coordinators of all brokers."""

    coordinator: ShareCoordinator
    persister: SharePersister


def make_share_state(world: CoordinatorWorld) -> ShareParts:
    """Make the share coordinator, which leads no partition yet, and the persister."""
    config, image, clock, timers = world.config, world.image, world.clock, world.timers
    log = RecordLog(
        SHARE_GROUP_STATE,
        world.replicas,
        clock,
        config.share_coordinator_state_topic_compression_codec,
        config.share_coordinator_load_buffer_size,
        keeps_all=True,
    )
    environment = ShareStateEnvironment(
        config, clock, log, partial(_knows, image), lambda: image.tombstones, ShareStateCounts()
    )
    of_runtime = RuntimeEnvironment(
        SHARE_GROUP_STATE,
        log,
        clock,
        timers,
        Turns(timers, clock),
        world.is_awake,
        config.share_coordinator_write_timeout_ms,
    )
    coordinator = ShareCoordinator(environment, of_runtime, config.share_coordinator_state_topic_num_partitions)
    of_links = LinkEnvironment(
        world.links, world.spawn, asyncio.timeout, clock, f"broker-{config.broker_id}-share-persister"
    )
    create = partial(world.create_topics, [SHARE_GROUP_STATE])
    return ShareParts(coordinator, SharePersister(config.broker_id, of_links, timers, image, coordinator, create))


def _knows(image: MetadataImage, partition: TopicIdPartition) -> bool:
    """True if the image has the topic and the partition."""
    topic = image.topics.get(image.topic_name(partition.topic_id) or "")
    return topic is not None and partition.partition < len(topic.partitions)


def start_coordinators(environment: HandlerEnvironment) -> list[Callable[[], None]]:
    """Start the coordinators after the partitions are hosted; return the functions that stop the coordinators."""
    groups, transactions, share_state = environment.groups, environment.transactions, environment.share_state
    broker_id, image = environment.broker_id, environment.image
    follow_topic(CONSUMER_OFFSETS, groups.runtime, broker_id, image)
    forget_deleted_topics(groups, image)
    follow_topic(TRANSACTION_STATE, transactions.runtime, broker_id, image)
    _report_ordinary_topic(image)
    follow_topic(SHARE_GROUP_STATE, share_state.runtime, broker_id, image)
    _forget_share_states(share_state, image)
    groups.start()
    transactions.start()
    share_state.start()
    return [groups.runtime.stop, transactions.runtime.stop, share_state.runtime.stop]


def follow_topic(topic: str, runtime: Runtime[Any], broker_id: int, image: MetadataImage) -> None:
    """Make `runtime` load the partitions of the topic that this broker leads, and close all other partitions.

    `runtime` does this now, and again after each change of the topic.
    """

    def lead(document: TopicDocument) -> None:
        runtime.partition_count = len(document.partitions)
        for index, state in enumerate(document.partitions):
            if state.leader == broker_id:
                runtime.elect(index, state.leader_epoch)
            else:
                runtime.resign(index)

    def changed(change: ImageChange) -> None:
        if topic in [document.name for document in change.deleted]:
            runtime.resign_all()
        for document in (*change.created, *change.changed):
            if document.name == topic:
                lead(document)

    if topic in image.topics:
        lead(image.topics[topic])
    image.subscribe(changed)


def forget_deleted_topics(groups: GroupCoordinator, image: MetadataImage) -> None:
    """Subscribe to deletions of topics, so that the committed offsets of deleted topics are removed.

    A topic that leaves the image without a tombstone was not deleted: an older backup may have brought back an earlier
    topic of the same name.
    """

    def changed(change: ImageChange) -> None:
        gone = [image.tombstones.get(document.topic_id) for document in change.deleted]
        deleted = {each.topic_id: each for each in gone if each is not None}
        if deleted:
            groups.on_topics_deleted(deleted)

    image.subscribe(changed)


def _forget_share_states(coordinator: ShareCoordinator, image: MetadataImage) -> None:
    """Subscribe to deletions of topics, so that the states of their share-partitions are deleted."""

    def changed(change: ImageChange) -> None:
        gone = {each.topic_id for each in change.deleted if each.topic_id in image.tombstones}
        if gone:
            coordinator.on_topics_deleted(gone)

    image.subscribe(changed)


def _report_ordinary_topic(image: MetadataImage) -> None:
    """Log an error now and at each change while `__transaction_state` lacks `cleanup.policy=compact`."""

    def check(topics: Iterable[TopicDocument]) -> None:
        if any(each.name == TRANSACTION_STATE and not is_compacted(each.configs) for each in topics):
            log.error(NOT_COMPACTED)

    check(image.topics.values())
    image.subscribe(lambda change: check((*change.created, *change.changed)))
