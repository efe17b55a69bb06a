"""A leader's proposal of another ISR (Kafka's AlterPartition, KIP-497)."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from barnabas_core.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class IsrChange:
    """`isr` gives for each member the broker epoch of the life that was seen to be in sync (KIP-903)."""

    topic_partition: TopicPartition
    topic_id: UUID
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]
