"""The stray topics: topics with logs on brokers, but with neither metadata nor a tombstone in the metadata store.

Brokers do not serve a stray topic, and no new topic can have its name. `barnabas restore-metadata` restores the
metadata of the topic from the logs; `barnabas forget-topic` writes a tombstone. A broker lists its stray topics in its
LogEndsDocuments.
"""

from collections.abc import Collection
from typing import NamedTuple
from uuid import UUID

from barnabas_broker.metadata.documents import log_ends_owner, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import TopicDocument
from barnabas_core import kafka_uuid
from barnabas_core.errors import ApiError, ErrorCode


class StrayTopic(NamedTuple):
    """A topic without metadata, and the brokers that have reported logs of the topic."""

    name: str
    topic_id: UUID
    brokers: tuple[int, ...]


def stray_topics(image: MetadataImage) -> list[StrayTopic]:
    """Return all stray topics, sorted by name."""
    brokers: dict[tuple[str, UUID], set[int]] = {}
    for key, document in image.log_ends.items():
        for topic_id, name in document.unknown_topics.items():
            if image.topic_name(topic_id) is None and topic_id not in image.tombstones:
                brokers.setdefault((name, topic_id), set()).add(log_ends_owner(key))
    return [StrayTopic(name, topic_id, tuple(sorted(of))) for (name, topic_id), of in sorted(brokers.items())]


def refusals(image: MetadataImage, names: Collection[str]) -> dict[str, TopicDocument | ApiError]:
    """Return an error for each name in `names` that belongs to a topic with lost or unreadable metadata."""
    found: dict[str, TopicDocument | ApiError] = {
        each.name: _logs_are_kept(each) for each in stray_topics(image) if each.name in names
    }
    incomplete = [name for name in names if name in image.incomplete or topic_key(name) in image.unreadable]
    return found | {name: _is_incomplete(name, image) for name in incomplete}


def _logs_are_kept(stray: StrayTopic) -> ApiError:
    topic_id, brokers = kafka_uuid.to_text(stray.topic_id), ", ".join(map(str, stray.brokers))
    message = (
        f"Topic '{stray.name}' has lost its metadata; brokers {brokers} keep its logs (topic id {topic_id}): "
        f"`barnabas restore-metadata` restores the topic, `barnabas forget-topic {topic_id}` deletes the logs."
    )
    return ApiError(ErrorCode.POLICY_VIOLATION, message)


def _is_incomplete(name: str, image: MetadataImage) -> ApiError:
    """Return the error for the name of a topic whose stored metadata is partly missing or unreadable."""
    unreadable = image.unreadable.get(topic_key(name))
    why = f"cannot be read ({unreadable})" if unreadable else "is incomplete in the metadata store"
    message = (
        f"Topic '{name}' exists, but its metadata {why}: `barnabas restore-metadata` restores the topic from the "
        f"logs, `barnabas forget-topic {name}` deletes the topic."
    )
    return ApiError(ErrorCode.POLICY_VIOLATION, message)
