"""A Kubernetes Event about a resource, as `kubectl describe` finds it. Pure."""

from typing import Any, Final, Literal

from barnabas_operator.planning.object_names import OPERATOR_NAME
from barnabas_operator.resources.object_meta import API_VERSION, shortened
from barnabas_operator.resources.resource import Resource

MESSAGE_LENGTH_MAX: Final = 1_024
"""The longest message that the newer API of Events allows (KEP-383)."""

EventType = Literal["Normal", "Warning"]
Said = tuple[EventType, str, str]
"""Type, reason and message of an Event."""


def kube_event(about: Resource, kind: EventType, reason: str, message: str, now: str) -> dict[str, Any]:
    """`reason` is the word that monitoring looks for; `now` in RFC 3339. Too long a message is cut."""
    namespace = about.metadata.namespace or "default"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about.metadata.name}-", "namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": about.kind,
            "namespace": namespace,
            "name": about.metadata.name,
            "uid": about.metadata.uid,
        },
        "type": kind,
        "reason": reason,
        "message": shortened(message, MESSAGE_LENGTH_MAX),
        "source": {"component": OPERATOR_NAME},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
