"""Partitions, read from the metadata of any broker."""

from typing import Any

from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.filters import Names
from barnabas_lag.evaluation.readings import PartitionReading


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
