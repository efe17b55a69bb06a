"""The current leader of a partition, for responses to clients that asked the wrong broker (KIP-951)."""

from typing import Final
from uuid import UUID

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration
from barnabas_broker.wire.framing import CurrentLeader, LeaderEndpoint
from barnabas_core.errors import ErrorCode

LEADER_ERRORS: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def current_leader(
    image: MetadataImage, listener_name: str, name: str | None, topic_id: bytes | None, index: int
) -> CurrentLeader | None:
    """Return the leader of a partition; None if the partition is unknown or has no leader.

    The topic id is used only if `name` is None.
    """
    if name is None and topic_id is not None:
        name = image.topic_name(UUID(bytes=topic_id))
    document = image.topics.get(name) if name is not None else None
    if document is None or not 0 <= index < len(document.partitions):
        return None
    state = document.partitions[index]
    if state.leader == NO_LEADER:
        return None
    registration = image.brokers.get(state.leader)
    endpoint = None if registration is None or registration.fenced else _endpoint(registration, listener_name)
    return CurrentLeader(state.leader, state.leader_epoch, endpoint)


def _endpoint(registration: BrokerRegistration, listener_name: str) -> LeaderEndpoint | None:
    for each in registration.listeners:
        if each.name == listener_name:
            return LeaderEndpoint(registration.broker_id, each.host, each.port, registration.rack)
    return None
