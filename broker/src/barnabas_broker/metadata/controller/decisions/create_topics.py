"""The functions that decide a CreateTopics request: the new topics, or Kafka's errors for invalid requests.

The functions that restore the lost metadata of topics from the log ends that brokers have reported. The reports
show the logs of each broker, and where each log ends. The replicas whose logs have the latest leader epoch and,
among these logs, the highest end offset are in sync; a live one of these replicas becomes the leader. If the
configs of a topic are lost, no record expires or is compacted until an administrator sets configs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final
from uuid import UUID

import msgspec

from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ClusterView,
    check_assignment,
    check_new_topic_configs,
    check_partitions_added,
    initial_state,
    place,
)
from barnabas_broker.metadata.documents import topic_part_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import reported_ends, stray_topics
from barnabas_broker.metadata.model import NO_LEADER, LogEnd, PartitionState, TopicDocument, TopicPartDocument
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import first_names
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.kafka_uuid import random_uuid
from barnabas_core.topic_partition import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    KnownNames,
    check_topic_name,
    usual_min_isr,
)

USE_DEFAULT: Final = -1


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create.

    -1 stands for the broker's default. `assignments` has (partition, replicas) pairs, as in the request.
    """

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict)


def decide_create_topics(
    view: ClusterView, requested: Sequence[NewTopic], random: Random
) -> dict[str, TopicDocument | ApiError]:
    """Return, for each requested topic name, the metadata of the new topic or the error.

    A topic that is requested twice gets an error.
    """
    times = Counter(topic.name for topic in requested)
    outcomes: dict[str, TopicDocument | ApiError] = {}
    names = KnownNames(view.topics)
    partitions = 0
    for topic in requested:
        try:
            check_partitions_added(partitions + _partition_count(view, topic))
            if times[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            created = outcomes[topic.name] = _create(view, topic, names, random)
            names.add(topic.name)
            partitions += len(created.partitions)
        except ApiError as error:
            outcomes[topic.name] = error
    return outcomes


def _partition_count(view: ClusterView, topic: NewTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return view.config.num_partitions if topic.partitions == USE_DEFAULT else topic.partitions


def _create(view: ClusterView, topic: NewTopic, names: KnownNames, random: Random) -> TopicDocument:
    check_topic_name(topic.name)
    if topic.name == CLUSTER_METADATA:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA} is prohibited.")
    if topic.name in view.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    other = names.colliding(topic.name)
    if other is not None:
        message = f"Topic '{topic.name}' collides with existing topic '{other}': '.' and '_' count as the same."
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    configs = _configs(view, topic)
    partitions = _assigned(view, topic) if topic.assignments else _placed(view, topic, random)
    return TopicDocument(topic.name, random_uuid(random.getrandbits), tuple(partitions), configs)


def _configs(view: ClusterView, topic: NewTopic) -> dict[str, str]:
    nulls = [name for name, value in topic.configs.items() if value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {first_names(nulls)}")
    configs = {name: value for name, value in topic.configs.items() if value is not None}
    check_new_topic_configs(view, configs, {})
    return configs


def _placed(view: ClusterView, topic: NewTopic, random: Random) -> list[PartitionState]:
    partitions, replicas = topic.partitions, topic.replication_factor
    if partitions != USE_DEFAULT and partitions < 1:
        message = f"Number of partitions was set to {partitions}; it must be at least 1, or -1 for the default."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    if replicas != USE_DEFAULT and replicas < 1:
        message = f"Replication factor was set to {replicas}; it must be at least 1, or -1 for the default."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)
    return place(
        view,
        view.config.num_partitions if partitions == USE_DEFAULT else partitions,
        view.config.default_replication_factor if replicas == USE_DEFAULT else replicas,
        random,
    )


def _assigned(view: ClusterView, topic: NewTopic) -> list[PartitionState]:
    if topic.replication_factor != USE_DEFAULT or topic.partitions != USE_DEFAULT:
        field_name = "replication factor" if topic.replication_factor != USE_DEFAULT else "number of partitions"
        message = f"A manual partition assignment was specified, but {field_name} was not set to -1."
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    by_partition = dict(topic.assignments)
    if len(by_partition) < len(topic.assignments):
        twice = next(number for number, count in Counter(n for n, _ in topic.assignments).items() if count > 1)
        message = f"Found multiple manual partition assignments for partition {twice}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    if sorted(by_partition) != list(range(len(by_partition))):
        message = f"Partitions should be a consecutive 0-based integer sequence; the request has {sorted(by_partition)}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for number in range(len(by_partition)):
        check_assignment(view, by_partition[number], len(by_partition[0]) if number else None)
    return [initial_state(view, by_partition[number]) for number in range(len(by_partition))]


_TRANSACTION_MIN_ISR: Final = "transaction.state.log.min.isr"
_SHARE_MIN_ISR: Final = "share.coordinator.state.topic.min.isr"


def is_compacted(configs: Mapping[str, str]) -> bool:
    """True if cleanup.policy is `compact` without `delete`, as coordinators require."""
    return configs.get("cleanup.policy") == "compact"


NOT_COMPACTED: Final = (
    f"transactions are refused, because the topic {TRANSACTION_STATE} does not have cleanup.policy=compact (an older "
    "version created the topic with ordinary configs): set the topic's cleanup.policy to compact, or delete the topic "
    "if nobody needs its records"
)


def automatic_topic(name: str, config: BrokerConfig) -> NewTopic:
    """Return the topic that the broker creates when a client first uses a topic with this name.

    An internal topic gets the configs that its coordinators need.
    """
    if name == CONSUMER_OFFSETS:
        return NewTopic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE:
        return NewTopic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": _min_isr(
                    config,
                    _TRANSACTION_MIN_ISR,
                    config.transaction_state_log_min_isr,
                    config.transaction_state_log_replication_factor,
                ),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_GROUP_STATE:
        return _share_group_state(config)
    return NewTopic(name)


def _share_group_state(config: BrokerConfig) -> NewTopic:
    """Return the topic of share coordinators, which prune it by DeleteRecords; records never expire."""
    replicas = config.share_coordinator_state_topic_replication_factor
    return NewTopic(
        SHARE_GROUP_STATE,
        config.share_coordinator_state_topic_num_partitions,
        replicas,
        configs={
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": _min_isr(
                config, _SHARE_MIN_ISR, config.share_coordinator_state_topic_min_isr, replicas
            ),
            "retention.ms": "-1",
            "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
        },
    )


def _min_isr(config: BrokerConfig, setting: str, min_isr: int, replicas: int) -> str:
    """Return the min.insync.replicas of a coordinator's topic.

    The default is below the replication factor, unless that is 1, so that one replica may be offline.
    """
    return str(min_isr if setting in config.originals else usual_min_isr(min_isr, replicas))


KEEPS_ALL: Final[Mapping[str, str]] = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""The configs of a restored topic whose own configs are lost; with them, no record expires or is compacted."""

Ends = Mapping[int, Mapping[int, LogEnd]]
"""The log ends of a topic's replicas, by partition and broker id."""


class Restored(msgspec.Struct, frozen=True):
    """The restored metadata of a topic, and the reported log ends of the partitions whose metadata was lost."""

    document: TopicDocument
    ends: Ends


class NotRestored(msgspec.Struct, frozen=True):
    """A topic that cannot be restored without an administrator's decision."""

    name: str
    topic_id: UUID
    why: str


def restored_topics(image: MetadataImage, config: BrokerConfig, *, accepts_loss: bool) -> list[Restored | NotRestored]:
    """Return the restored metadata of each topic that has logs but incomplete metadata, or why it is not restored.

    If `accepts_loss` is True, partitions without any log are restored as empty, and missing logs of other partitions
    are ignored.
    """
    held, strays = reported_ends(image), stray_topics(image)
    decided: list[Restored | NotRestored] = []
    for stray in strays:
        others = [each for each in strays if each.name == stray.name and each is not stray]
        if others or stray.name in image.topics:
            why = "another topic has the same name; delete the logs of one topic with `barnabas forget-topic TOPIC_ID`"
            decided.append(NotRestored(stray.name, stray.topic_id, why))
            continue
        document = _head(image, stray.name, stray.topic_id, config)
        known = dict(_known_partitions(document, image))
        decided.append(_restored(document, known, held.get(stray.topic_id, {}), image, accepts_loss=accepts_loss))
    for topic in image.topics.values():
        known = dict(enumerate(topic.partitions))
        ends = held.get(topic.topic_id, {})
        if any(number not in known for number in ends):
            decided.append(_restored(topic, known, ends, image, accepts_loss=accepts_loss))
    return decided


def _head(image: MetadataImage, name: str, topic_id: UUID, config: BrokerConfig) -> TopicDocument:
    """Return the metadata of the topic that the store still has, or new metadata without partitions."""
    head = image.incomplete.get(name)
    if head is not None and head.topic_id == topic_id:
        return head
    configs = {key: value for key, value in automatic_topic(name, config).configs.items() if value is not None}
    return TopicDocument(name, topic_id, (), configs or dict(KEEPS_ALL))


def _known_partitions(head: TopicDocument, image: MetadataImage) -> Iterator[tuple[int, PartitionState]]:
    yield from enumerate(head.partitions)
    for part in head.parts:
        found = image.stored(topic_part_key(head.name, part))
        if isinstance(found, TopicPartDocument) and found.topic_id == head.topic_id:
            yield from enumerate(found.partitions, part.first)


def _restored(
    topic: TopicDocument, known: Mapping[int, PartitionState], held: Ends, image: MetadataImage, *, accepts_loss: bool
) -> Restored | NotRestored:
    count = max([0, *(number + 1 for number in (*known, *held)), *(part.first + part.count for part in topic.parts)])
    ends = {number: held.get(number, {}) for number in range(count) if number not in known}
    why = _why_not(ends)
    if why is not None and not (accepts_loss and any(ends.values())):
        return NotRestored(topic.name, topic.topic_id, why)
    some = next(found for found in ends.values() if found)
    missing = {broker: LogEnd(0, -1, 0, 0) for broker in some}
    states = {number: _state(number, found or missing, image) for number, found in ends.items()}
    partitions = tuple(known[number] if number in known else states[number] for number in range(count))
    return Restored(msgspec.structs.replace(topic, partitions=partitions), ends)


def _why_not(ends: Ends) -> str | None:
    """Return why a topic cannot be restored yet, or None."""
    missing = [number for number, found in ends.items() if not found]
    most = max(map(len, ends.values()), default=0)
    fewer = [number for number, found in ends.items() if len(found) < most]
    way_on = "start the brokers that have the missing logs, or restore the topic without these logs with --accept-loss"
    if not any(ends.values()):
        return "no registered broker has a log of the topic: start the brokers that have logs of the topic"
    if missing:
        return f"no registered broker has a log of partition {missing[0]}: {way_on}"
    if fewer:
        return f"partition {fewer[0]} has logs on {len(ends[fewer[0]])} brokers, other partitions on {most}: {way_on}"
    return None


def _state(number: int, ends: Mapping[int, LogEnd], image: MetadataImage) -> PartitionState:
    """Return the state of a restored partition, with a leader epoch above the epochs of all logs of the partition.

    The partition number decides which replica comes first, so that preferred leaders are spread over the brokers.
    """
    brokers, first = sorted(ends), number % len(ends)
    replicas = (*brokers[first:], *brokers[:first])
    longest = max((end.epoch, end.offset) for end in ends.values())
    isr = tuple(each for each in replicas if (ends[each].epoch, ends[each].offset) == longest)
    leader = next((each for each in isr if each in image.live), NO_LEADER)
    epoch = longest[0] + 1
    return PartitionState(replicas, leader, epoch, isr, restored_epoch=epoch)
