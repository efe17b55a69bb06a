"""The partitions that are led by another replica than the preferred one, though that could lead."""

from collections.abc import Iterable, Iterator

from barnabas_broker.metadata.controller.decisions.partition_rules import Rules
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.topic_partition import TopicPartition


def wants_preferred(state: PartitionState, rules: Rules) -> bool:
    """True if the first replica should be elected."""
    preferred = state.replicas[0]
    return state.leader != preferred and preferred in state.isr and rules.may_lead(preferred)


def unbalanced(topics: Iterable[TopicDocument], rules: Rules) -> Iterator[TopicPartition]:
    """Yield the partitions that another replica leads though the preferred one could; rules of topics play no part."""
    for topic in topics:
        for number, state in enumerate(topic.partitions):
            if wants_preferred(state, rules):
                yield TopicPartition(topic.name, number)
