"""Which replicas are on their way to other brokers, and where to."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from kafka.errors import KafkaError, for_code
from kafka.protocol.admin import ListPartitionReassignmentsRequest
from kafka.protocol.metadata import MetadataRequest

from barnabas_core.errors import ErrorCode
from barnabas_kafka.connection import REQUEST_TIMEOUT_S
from barnabas_operator.planning.cluster_state import ReplicaIds

LOOK_MS = 1
"""For one look, not several."""

Topics = list[dict[str, Any]]
"""As the library's client describes them."""
Moves = dict[str, dict[int, ReplicaIds]]
"""By topic and partition, the replicas that there will be when a reassignment is done."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def reassignments(client: Any) -> Moves:
    """What moves. Raises KafkaError.

    The broker that moves are sent to knows them at once, others a little later: by topics of one of these, and no
    moves of another, replicas on their way would look like too many, and their move would be called off.
    """
    return _of_who_writes(client, lambda broker_id: _reassignments(client, broker_id))


def topics_and_moves(client: Any) -> tuple[Topics, Moves]:
    """All topics, and what moves of them; both of the broker that moves are sent to. Raises KafkaError.

    That is asked for what moves before and after, so that the replicas of a move that begins or ends just then are
    never taken for replicas at rest: one more of them than is wanted. Such a move counts as under way once more.
    """

    def ask(broker_id: int | None) -> tuple[Topics, Moves]:
        before = _reassignments(client, broker_id)
        topics = _topics(client, broker_id)
        after = _reassignments(client, broker_id)
        names = before.keys() | after.keys()
        return topics, {name: before.get(name, {}) | after.get(name, {}) for name in names}

    return _of_who_writes(client, ask)


def _of_who_writes(client: Any, ask: Callable[[int | None], T]) -> T:
    """What the broker tells that the library sends changes to; any other where that one is gone."""
    writer, manager = _writer(client), client._manager
    if writer is not None and writer not in manager._backoff:
        try:
            return ask(writer)
        except KafkaError as error:
            log.warning("broker %d does not tell what moves; another one is asked: %s", writer, error)
    return ask(manager.run(manager.least_loaded_node))


def _writer(client: Any) -> int | None:
    """The broker that the library sends changes to. It looks for one only when it sends the first."""
    if client._controller_id is None:
        try:
            client._controller_id = client._manager.run(client._refresh_controller_id, LOOK_MS)
        except KafkaError as error:
            log.warning("no broker tells which one is the controller; any one is asked what moves: %s", error)
    return client._controller_id


def _topics(client: Any, broker_id: int | None) -> Topics:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = client._manager.run(client._manager.send, request, broker_id)
    return [topic.to_dict() for topic in answer.topics]


def _reassignments(client: Any, broker_id: int | None) -> Moves:
    request = ListPartitionReassignmentsRequest(timeout_ms=int(REQUEST_TIMEOUT_S * 1000), topics=None)
    answer = client._manager.run(client._manager.send, request, broker_id)
    if answer.error_code != ErrorCode.NONE:
        raise for_code(answer.error_code)(answer.error_message)
    return {
        topic.name: {
            each.partition_index: tuple(id_ for id_ in each.replicas if id_ not in each.removing_replicas)
            for each in topic.partitions
        }
        for topic in answer.topics
    }
