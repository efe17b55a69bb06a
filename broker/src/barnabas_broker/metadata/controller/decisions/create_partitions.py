"""The decision on CreatePartitions.

The number of partitions never falls, because records would be lost and keys would move to other partitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from barnabas_broker.metadata.controller.decisions.cluster_view import ClusterView
from barnabas_broker.metadata.controller.decisions.replicas import (
    check_assignment,
    check_partitions_added,
    initial_state,
    place_added,
    replication_factor_of,
)
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_core.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The number of partitions that a topic is to have.

    `assignments` has the replicas of each added partition; None lets the controller choose the replicas.
    """

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def decide_create_partitions(view: ClusterView, wanted: NewPartitions) -> TopicDocument:
    """Return the topic with the added partitions. Raises ApiError if the request is invalid."""
    topic = view.topics.get(wanted.name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wanted.name}' does not exist.")
    present = len(topic.partitions)
    if wanted.count == present:
        message = f"Topic {wanted.name} already has {present} partition(s); the count must be larger."
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    if wanted.count < present:
        message = (
            f"The topic {wanted.name} currently has {present} partition(s); {wanted.count} would not be an increase."
        )
        raise ApiError(ErrorCode.INVALID_PARTITIONS, message)
    added = _added(view, topic, wanted)
    return msgspec.structs.replace(topic, partitions=(*topic.partitions, *added))


def _added(view: ClusterView, topic: TopicDocument, wanted: NewPartitions) -> list[PartitionState]:
    additional = wanted.count - len(topic.partitions)
    check_partitions_added(additional)
    if wanted.assignments is None:
        return place_added(view, topic.partitions, additional)
    if len(wanted.assignments) != additional:
        message = (
            f"Attempted to add {additional} additional partition(s), but {len(wanted.assignments)} "
            "assignment(s) were specified."
        )
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for replicas in wanted.assignments:
        check_assignment(view, replicas, replication_factor_of(topic.partitions[0]))
    return [initial_state(view, replicas) for replicas in wanted.assignments]
