"""The Kubernetes Event for a resource, in the form that `kubectl describe` shows."""

from typing import Any, Final, Literal

from barnabas_operator.planning.object_names import OPERATOR_NAME
from barnabas_operator.resources.object_meta import API_VERSION, shortened
from barnabas_operator.resources.resource import Resource

MESSAGE_LENGTH_MAX: Final = 1_024
"""The longest message that the newer API of Events allows (KEP-383)."""

EventType = Literal["Normal", "Warning"]
Said = tuple[EventType, str, str]
"""The type, the reason and the message of an Event."""


def kube_event(about: Resource, kind: EventType, reason: str, message: str, now: str) -> dict[str, Any]:
    """Return an Event as JSON; `now` is in RFC 3339. Messages above `MESSAGE_LENGTH_MAX` are shortened."""
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
