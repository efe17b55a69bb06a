"""The placement of a topic's replicas by Kafka's algorithm, with its two random numbers derived from the topic.

The same topic on the same brokers always gets the same placement, so that planning twice gives the same plan, and
partitions that are added later are placed as if the topic had been created with them.
"""

from collections.abc import Mapping

import mmh3

from barnabas_core.placement import assign_replicas
from barnabas_operator.planning.cluster_state import ReplicaIds
from barnabas_operator.resources.topic import Topic


def place_partitions(
    topic: Topic, racks: Mapping[int, str | None], partitions: range, replication_factor: int
) -> tuple[ReplicaIds, ...]:
    """Return the replicas of the partitions in the range. The caller has checked that there are enough brokers."""
    start_index, shift = placement_seed(topic, len(racks))
    by_rack = racks if all(rack is not None for rack in racks.values()) else None
    placed = assign_replicas(sorted(racks), partitions.stop, replication_factor, start_index, shift, by_rack)
    return tuple(tuple(placed[number]) for number in partitions)


def placement_seed(topic: Topic, brokers: int) -> tuple[int, int]:
    """Return the start index and the shift for `assign_replicas`, each below the number of brokers.

    Both are parts of the MurmurHash3 of the topic's uid or, without a uid, of its name.
    """
    low, high = mmh3.hash64(topic.metadata.uid or topic.topic_name, signed=False)
    return low % brokers, high % brokers
