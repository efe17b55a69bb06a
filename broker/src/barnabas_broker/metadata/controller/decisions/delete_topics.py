"""The functions that decide which topics a DeleteTopics request deletes."""

from collections.abc import Callable
from uuid import UUID

from barnabas_broker.metadata.controller.decisions.cluster_view import ClusterView
from barnabas_broker.metadata.model import TopicDocument
from barnabas_core.errors import ApiError, ErrorCode


def decide_delete_topic(view: ClusterView, topic: str | UUID, name_of: Callable[[UUID], str | None]) -> TopicDocument:
    """Return the topic to delete. Raises ApiError if topic deletion is disabled or no such topic exists."""
    if not view.config.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled: delete.topic.enable=false")
    if isinstance(topic, UUID):
        found = view.topics.get(name_of(topic) or "")
        code, message = ErrorCode.UNKNOWN_TOPIC_ID, f"No topic has the id {topic}."
    else:
        found = view.topics.get(topic)
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist."
    if found is None:
        raise ApiError(code, message)
    return found
