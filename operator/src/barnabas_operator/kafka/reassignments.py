"""Which replicas are on their way to other brokers, and where to."""

import logging
from typing import Any

from kafka.errors import KafkaError, for_code
from kafka.protocol.admin import ListPartitionReassignmentsRequest

from barnabas_core.errors import ErrorCode
from barnabas_kafka.connection import REQUEST_TIMEOUT_S
from barnabas_operator.planning.cluster_state import ReplicaIds

log = logging.getLogger(__name__)


def reassignments(client: Any) -> dict[str, dict[int, ReplicaIds]]:
    """By topic and partition, the replicas that there will be when a reassignment is done. Raises KafkaError.

    The broker that moves are sent to knows them at once, others a little later: by topics of one of these, and no
    moves of another, replicas on their way would look like too many, and their move would be called off.
    """
    request = ListPartitionReassignmentsRequest(timeout_ms=int(REQUEST_TIMEOUT_S * 1000), topics=None)
    answer = _of_who_writes(client, request)
    if answer.error_code != ErrorCode.NONE:
        raise for_code(answer.error_code)(answer.error_message)
    return {
        topic.name: {
            each.partition_index: tuple(id_ for id_ in each.replicas if id_ not in each.removing_replicas)
            for each in topic.partitions
        }
        for topic in answer.topics
    }


def _of_who_writes(client: Any, request: Any) -> Any:
    """The answer of the broker that the library sends changes to; of any other where that one is gone."""
    writer, manager = client._controller_id, client._manager
    if writer is not None and writer not in manager._backoff:
        try:
            return manager.run(manager.send, request, writer)
        except KafkaError as error:
            log.warning("broker %d does not tell what moves; another one is asked: %s", writer, error)
    return manager.run(manager.send, request)
