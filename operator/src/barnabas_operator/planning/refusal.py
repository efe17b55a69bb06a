"""The refusal of a resource: a reason in CamelCase for machines, and a message for people."""

from collections.abc import Iterable
from typing import Final, NamedTuple

NOT_SUPPORTED: Final = "NotSupported"
RESOURCE_CONFLICT: Final = "ResourceConflict"
INVALID_CONFIG: Final = "InvalidConfig"
INVALID_TOPIC_NAME: Final = "InvalidTopicName"
NOT_ENOUGH_BROKERS: Final = "NotEnoughBrokers"
DELETION_PROTECTED: Final = "DeletionProtected"
CLUSTER_NOT_READY: Final = "ClusterNotReady"
CLUSTER_NOT_FOUND: Final = "ClusterNotFound"
KAFKA_ERROR: Final = "KafkaError"
KUBERNETES_ERROR: Final = "KubernetesError"
INTERNAL_ERROR: Final = "InternalError"
INVALID_SPEC: Final = "InvalidSpec"
LISTED_MAX: Final = 5


class Refusal(NamedTuple):
    """The reason in CamelCase and the message of a condition that says why a resource is not reconciled."""

    reason: str
    message: str


def listed(items: Iterable[object], shown_max: int = LISTED_MAX) -> str:
    """Return the first `shown_max` items and the number of other items, as one text for a message."""
    every = list(map(str, items))
    more = f" and {len(every) - shown_max} more" if len(every) > shown_max else ""
    return ", ".join(every[:shown_max]) + more
