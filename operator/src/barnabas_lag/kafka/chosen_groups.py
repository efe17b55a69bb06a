"""The reading of chosen groups, their members and their partitions."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kafka.protocol.metadata import MetadataRequest

from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import Asking
from barnabas_lag.evaluation.readings import Consumer, PartitionReading, Readings
from barnabas_lag.kafka.cluster_metadata import ASKED, coordinators, partitions_of, without_coordinator
from barnabas_lag.kafka.described import Described
from barnabas_lag.kafka.groups import described_groups, group_readings, listed_groups
from barnabas_lag.kafka.offsets import with_ends, with_stable_offsets
from barnabas_lag.kafka.offsets_retention import OffsetsRetention

CONSUMERS_MAX: Final = 20
"""The maximum number of members for each group; further members, and their assignments, are left out."""


class Chosen(NamedTuple):
    """The state of the chosen groups, and at most CONSUMERS_MAX members of each group."""

    readings: Readings
    consumers: Mapping[str, Sequence[Consumer]]
    away: frozenset[str] = frozenset()
    """The groups whose coordinator is unavailable, so that nobody knows whether they exist."""


def read_chosen(
    asking: Asking,
    group_ids: Collection[str],
    topics_before: Mapping[str, Collection[str]],
    retention: OffsetsRetention,
) -> Chosen:
    """Read the committed offsets and members of the groups in `group_ids`, and all partitions of the groups' topics.

    If a group cannot be read, its topics are those of the previous round, which `topics_before` has for each group.
    Raises ClusterUnreachable if no broker answers.
    """
    metadata = asking.ask_any(MetadataRequest(topics=[ASKED], allow_auto_topic_creation=False))
    broker_ids = [each.node_id for each in metadata.brokers]
    asking.meet(broker_ids)
    listed, is_complete = listed_groups(asking, broker_ids, frozenset(group_ids))
    described = described_groups(asking, listed)
    consumers = {group_id: tuple(_consumers(each)) for group_id, each in described.items()}
    groups = group_readings(asking, listed, described, lambda each: each)
    away = without_coordinator(set(group_ids) - listed.keys(), coordinators(metadata), broker_ids)
    silent = frozenset(listed.keys() - groups.keys() | away)
    unheard = silent if is_complete else set(group_ids) - groups.keys()
    read = {where.topic for reading in groups.values() for where in reading.committed}
    had = {where.topic for some in consumers.values() for each in some for where in each.partitions}
    topics = read | had | {topic for group_id in unheard for topic in topics_before.get(group_id, ())}
    partitions = with_ends(asking, with_stable_offsets(asking, _partitions(asking, topics)))
    retention_s = retention.seconds(asking, broker_ids)
    readings = Readings(len(broker_ids), partitions, groups, silent, is_complete, retention_s)
    return Chosen(readings, consumers, frozenset(away))


def _partitions(asking: Asking, topics: Collection[str]) -> dict[TopicPartition, PartitionReading]:
    if not topics:
        return {}
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(topics)]
    return partitions_of(asking.ask_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False)), topics)


def _consumers(group: Described) -> Iterator[Consumer]:
    """Yield the first CONSUMERS_MAX members of a group with their assigned partitions.

    A member has no partitions during a rebalance, or if its assignment is not that of a consumer.
    """
    for each in group.members[:CONSUMERS_MAX]:
        partitions = group.partitions_of(each) or ()
        yield Consumer(each.client_id, each.client_host.removeprefix("/"), partitions)
