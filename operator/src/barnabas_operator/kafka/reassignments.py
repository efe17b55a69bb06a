"""Reads active reassignments: the replicas that each moving partition will have."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from kafka.errors import KafkaError, for_code
from kafka.protocol.admin import ListPartitionReassignmentsRequest
from kafka.protocol.metadata import MetadataRequest

from barnabas_core.errors import ErrorCode
from barnabas_kafka.connection import REQUEST_TIMEOUT_S
from barnabas_operator.planning.cluster_state import ReplicaIds

Topics = list[dict[str, Any]]
"""The topics as kafka-python's client describes them."""
Moves = dict[str, dict[int, ReplicaIds]]
"""The replicas that a partition will have after its reassignment, by topic and partition."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def reassignments(client: Any) -> Moves:
    """Return the active reassignments. Ask the broker to which reassignment requests were last sent.

    Other brokers may not know the latest reassignments yet, but are asked if that broker fails. Raises KafkaError.
    """
    return _of_mover(client, lambda broker_id: _reassignments(client, broker_id))


def topics_and_moves(client: Any) -> tuple[Topics, Moves]:
    """Return all topics and their active reassignments. Raises KafkaError.

    Reassignments are read before and after the topics, so that a reassignment that begins or ends meanwhile counts as
    active. Otherwise the partition would seem to have too many replicas, and the reassignment would be cancelled.
    """

    def ask(broker_id: int | None) -> tuple[Topics, Moves]:
        before = _reassignments(client, broker_id)
        topics = _topics(client, broker_id)
        after = _reassignments(client, broker_id)
        names = before.keys() | after.keys()
        return topics, {name: before.get(name, {}) | after.get(name, {}) for name in names}

    return _of_mover(client, ask)


def _of_mover(client: Any, ask: Callable[[int | None], T]) -> T:
    """Call `ask` for the broker that last got a reassignment request, or for another broker if that broker fails."""
    connections = client.connections
    mover = connections.mover
    if mover is not None and mover not in connections.failing:
        try:
            return ask(mover)
        except KafkaError as error:
            log.warning("broker %d does not report reassignments; asking another broker: %s", mover, error)
    return ask(connections.run(connections.least_loaded_node))


def _topics(client: Any, broker_id: int | None) -> Topics:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = client.ask(request, broker_id)
    return [topic.to_dict() for topic in answer.topics]


def _reassignments(client: Any, broker_id: int | None) -> Moves:
    request = ListPartitionReassignmentsRequest(timeout_ms=int(REQUEST_TIMEOUT_S * 1000), topics=None)
    answer = client.ask(request, broker_id)
    if answer.error_code != ErrorCode.NONE:
        raise for_code(answer.error_code)(answer.error_message)
    return {
        topic.name: {
            each.partition_index: tuple(id_ for id_ in each.replicas if id_ not in each.removing_replicas)
            for each in topic.partitions
        }
        for topic in answer.topics
    }
