"""The check that a broker to unregister has stopped and has no replicas."""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from barnabas_broker.metadata.model import BrokerRegistration, TopicDocument
from barnabas_core.errors import ApiError, ErrorCode

NAMED_MAX: Final = 3


def check_unregistration(
    broker_id: int, registration: BrokerRegistration | None, topics: Iterable[TopicDocument]
) -> None:
    """Raise ApiError if the broker is not registered, is not fenced, or has replicas."""
    if registration is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered.")
    if not registration.fenced:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"broker {broker_id} is alive; only a stopped broker can be unregistered"
        )
    held = (
        f"{topic.name}-{number}"
        for topic in topics
        for number, state in enumerate(topic.partitions)
        if broker_id in state.replicas
    )
    named = ", ".join(islice(held, NAMED_MAX))
    if named:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {broker_id} has replicas ({named}); reassign them first")
