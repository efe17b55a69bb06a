"""The placement of a topic's replicas: Kafka's own way, its two random numbers taken from the topic.

So the same topic on the same brokers is always placed alike: planning twice gives the same plan, and partitions that
are added later go where they would have gone at once.
"""

from collections.abc import Mapping

import mmh3

from barnabas_core.placement import assign_replicas
from barnabas_operator.planning.cluster_state import ReplicaIds
from barnabas_operator.resources.topic import Topic


def place_partitions(
    topic: Topic, racks: Mapping[int, str | None], partitions: range, replication_factor: int
) -> tuple[ReplicaIds, ...]:
    """The replicas of the partitions with these numbers. The caller has checked that there are enough brokers."""
    start_index, shift = placement_seed(topic, len(racks))
    by_rack = racks if all(rack is not None for rack in racks.values()) else None
    placed = assign_replicas(sorted(racks), partitions.stop, replication_factor, start_index, shift, by_rack)
    return tuple(tuple(placed[number]) for number in partitions)


def placement_seed(topic: Topic, brokers: int) -> tuple[int, int]:
    """Start index and shift, each from 0 and below the number of brokers, by MurmurHash3 of the topic's uid or name."""
    low, high = mmh3.hash64(topic.metadata.uid or topic.topic_name, signed=False)
    return low % brokers, high % brokers
