"""The reassignments: which replicas are moving to other brokers, and where to."""

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
"""The topics as the library's client describes them."""
Moves = dict[str, dict[int, ReplicaIds]]
"""The replicas after the reassignment is done, by topic and partition."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def reassignments(client: Any) -> Moves:
    """Return the reassignments. Raises KafkaError.

    The broker that moves are sent to knows them at once, others a little later: by topics of one of these, and no moves
    of another, replicas on their way would look like too many, and their move would be called off.
    """
    return _of_mover(client, lambda broker_id: _reassignments(client, broker_id))


def topics_and_moves(client: Any) -> tuple[Topics, Moves]:
    """Return all topics and their reassignments, both from the broker that gets reassignments. Raises KafkaError.

    That is asked for what moves before and after, so that the replicas of a move that begins or ends just then are
    never taken for replicas at rest: one more of them than is wanted. Such a move counts as under way once more.
    """

    def ask(broker_id: int | None) -> tuple[Topics, Moves]:
        before = _reassignments(client, broker_id)
        topics = _topics(client, broker_id)
        after = _reassignments(client, broker_id)
        names = before.keys() | after.keys()
        return topics, {name: before.get(name, {}) | after.get(name, {}) for name in names}

    return _of_mover(client, ask)


def _of_mover(client: Any, ask: Callable[[int | None], T]) -> T:
    """Ask the broker that gets reassignments; any other one if that has stopped."""
    connections = client.connections
    mover = connections.mover
    if mover is not None and mover not in connections.failing:
        try:
            return ask(mover)
        except KafkaError as error:
            log.warning("broker %d does not tell what moves; another one is asked: %s", mover, error)
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
