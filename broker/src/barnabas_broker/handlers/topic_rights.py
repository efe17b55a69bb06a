"""The rights to topics of a Produce or Fetch, found by name or by the bytes of an id, as the request has them."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import DECISIONS_MAX, Rights
from barnabas_core.acls import AclOperation, ResourceType

AskedTopicKey = str | bytes | None


class AskedTopic(Protocol):
    """A topic of a request: it has one of the two."""

    @property
    def name(self) -> str | None:
        """The name, up to some version of the API."""
        ...

    @property
    def topic_id(self) -> bytes | None:
        """The id, from that version on."""
        ...


def lacking(
    environment: HandlerEnvironment, rights: Rights, operation: AclOperation, topics: Sequence[AskedTopic]
) -> frozenset[AskedTopicKey]:
    """Find the topics to which a client has no right, and remember the others for its next request.

    An id that nobody knows is not refused: the answer says that it is unknown.
    """
    granted = rights.writable if operation is AclOperation.WRITE else rights.readable
    refused = set()
    for topic in topics:
        key: AskedTopicKey = topic.topic_id or topic.name
        name = topic.name if topic.topic_id is None else environment.image.topic_name(UUID(bytes=topic.topic_id))
        if name is None:
            continue
        if not rights.may(operation, ResourceType.TOPIC, name):
            refused.add(key)
        elif len(granted) < DECISIONS_MAX:
            granted.add(key)
    return frozenset(refused)
