"""The rights of the client of a request, also to topics that the request names or gives by their ids."""

from collections.abc import Sequence
from typing import Protocol
from uuid import UUID

from barnabas_broker.handlers.channel import Client
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.acls.authorizer import DECISIONS_MAX, EVERY_RIGHT, Rights
from barnabas_core.acls import AclOperation, ResourceType


def rights_of(environment: HandlerEnvironment, client: Client) -> Rights:
    """Return the rights of a client; without an authorizer, every client has every right."""
    authorizer = environment.authorizer
    return EVERY_RIGHT if authorizer is None else authorizer.rights(client.principal, client.host)


def may_act_as_broker(environment: HandlerEnvironment, client: Client) -> bool:
    """True if the client may act as a broker.

    Without an authorizer every client has every right; then those on the listener between brokers may act as one.
    """
    if environment.authorizer is None:
        return client.listener_name == environment.config.listeners.inter_broker
    return rights_of(environment, client).may_see(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def cluster_operations(environment: HandlerEnvironment, client: Client) -> set[int]:
    """Return the codes of the cluster operations that the client may perform; none without Describe on the cluster."""
    rights = rights_of(environment, client)
    if not rights.may_see(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return set()
    return rights.operations(ResourceType.CLUSTER)


AskedTopicKey = str | bytes | None


class AskedTopic(Protocol):
    """A topic of a request, with either a name or a topic id."""

    @property
    def name(self) -> str | None:
        """The name of the topic; None if the request has topic ids."""
        ...

    @property
    def topic_id(self) -> bytes | None:
        """The bytes of the topic id; None if the request has topic names."""
        ...


def lacking(
    environment: HandlerEnvironment, rights: Rights, operation: AclOperation, topics: Sequence[AskedTopic]
) -> frozenset[AskedTopicKey]:
    """Return the topics to which the client has no right, and cache the allowed topics for its next requests.

    An unknown topic id is not refused, because the handler answers it with an error.
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
