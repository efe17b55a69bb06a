"""The partitions and the coordinators of groups, read from the metadata of any broker.

Coordinators are found through metadata, because FindCoordinator would create `__consumer_offsets`.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from kafka.protocol.metadata import MetadataRequest

from barnabas_core.java_hash import coordinator_partition
from barnabas_core.topic_name import CONSUMER_OFFSETS
from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.filters import Names
from barnabas_lag.evaluation.readings import PartitionReading

ASKED: Final = MetadataRequest.MetadataRequestTopic(name=CONSUMER_OFFSETS)


def coordinators(metadata: Any) -> Sequence[int]:
    """Return the leaders of the partitions of `__consumer_offsets`, in order; none if the topic does not exist."""
    found = {
        part.partition_index: int(part.leader_id)
        for topic in metadata.topics
        if topic.name == CONSUMER_OFFSETS
        for part in topic.partitions
    }
    return [found[number] for number in sorted(found)]


def without_coordinator(group_ids: Iterable[str], leaders: Sequence[int], broker_ids: Collection[int]) -> set[str]:
    """Return the groups whose coordinator is unavailable, so that nobody knows whether they exist."""
    if not leaders:
        return set()
    return {each for each in group_ids if leaders[coordinator_partition(each, len(leaders))] not in broker_ids}


def partitions_of(metadata: Any, wanted: Names) -> dict[TopicPartition, PartitionReading]:
    """Return the partitions of the topics in `wanted`, sorted, without log start and log end offsets."""
    return {
        TopicPartition(topic.name, part.partition_index): PartitionReading(
            part.leader_id, tuple(part.replica_nodes), tuple(part.isr_nodes), topic_id=topic.topic_id
        )
        for topic in sorted(metadata.topics, key=lambda topic: str(topic.name))
        if topic.name in wanted
        for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
    }
