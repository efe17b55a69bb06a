"""The deletion of an empty `__transaction_state` that an old broker version created as an ordinary topic.

FindCoordinator then creates the topic again, with the partitions and the cleanup policy that the coordinator needs.
"""

import logging
from uuid import UUID

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.internal_topics import NOT_COMPACTED, is_compacted
from barnabas_broker.metadata.image.image_change import ImageChange
from barnabas_broker.metadata.model import TopicDocument
from barnabas_core.errors import ApiError
from barnabas_core.topic_name import TRANSACTION_STATE
from barnabas_core.topic_partition import TopicPartition

_logger = logging.getLogger(__name__)


def watch_mistaken_topic(environment: HandlerEnvironment) -> None:
    """Delete `__transaction_state` if the topic lacks `cleanup.policy=compact`; log an error if it may have records.

    The topic is checked at once and at every change. Call this function after the partitions are hosted.
    """

    def changed(change: ImageChange) -> None:
        for document in (*change.created, *change.changed):
            if document.name == TRANSACTION_STATE:
                _look_at(environment, document)

    if TRANSACTION_STATE in environment.image.topics:
        _look_at(environment, environment.image.topics[TRANSACTION_STATE])
    environment.image.subscribe(changed)


def _look_at(environment: HandlerEnvironment, document: TopicDocument) -> None:
    if is_compacted(document.configs):
        return
    if _leads_it_empty(environment, document):
        environment.attempt(_delete(environment, document.topic_id))
    else:
        _logger.error(NOT_COMPACTED)


def _leads_it_empty(environment: HandlerEnvironment, document: TopicDocument) -> bool:
    """True if this broker leads all partitions of the topic, and no partition has records."""
    for number in range(len(document.partitions)):
        partition = environment.replicas.lookup.hosted(TopicPartition(document.name, number))
        if partition is None or partition.leader is None or partition.failure is not None:
            return False
        if partition.log.log_start_offset < partition.log.log_end_offset:
            return False
    return True


async def _delete(environment: HandlerEnvironment, topic_id: UUID) -> None:
    """Delete the topic by its topic id, so that a new topic with the same name stays."""
    outcome = (await environment.metadata_writer.delete_topics([topic_id]))[topic_id]
    if isinstance(outcome, ApiError):
        _logger.error("%s; the topic is empty, but could not be deleted: %s", NOT_COMPACTED, outcome)
    else:
        _logger.warning(
            "the empty topic %s was deleted, because it was not compacted; the broker creates the topic again for the "
            "next transactional producer",
            TRANSACTION_STATE,
        )
