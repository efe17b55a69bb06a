"""The functions that decide a CreateTopics request: the new topics, or Kafka's errors for invalid requests."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ClusterView,
    check_assignment,
    check_new_topic_configs,
    check_partitions_added,
    initial_state,
    place,
)
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.config.definitions import first_names
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.kafka_uuid import random_uuid
from barnabas_core.topic_name import CLUSTER_METADATA, KnownNames, check_topic_name

USE_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    -1 stands for the broker's default. `assignments` has (partition, replicas) pairs, as in the request.
    """

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


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
