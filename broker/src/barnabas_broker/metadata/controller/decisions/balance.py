"""The partitions whose preferred replica could lead, but does not."""

from collections.abc import Iterable, Iterator

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.topic_partition import TopicPartition


def wants_preferred(state: PartitionState, rules: Rules) -> bool:
    """True if the preferred replica does not lead the partition, but is in the ISR and may lead."""
    preferred = state.replicas[0]
    return state.leader != preferred and preferred in state.isr and rules.may_lead(preferred)


def unbalanced(topics: Iterable[TopicDocument], rules: Rules) -> Iterator[TopicPartition]:
    """Yield the partitions whose preferred replica could lead, but does not."""
    for topic in topics:
        for number, state in enumerate(topic.partitions):
            if wants_preferred(state, rules):
                yield TopicPartition(topic.name, number)
