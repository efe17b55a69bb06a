"""The reasons, from the Events of Kubernetes controllers, why a pod or its volume is not created."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from barnabas_operator.resources.json_types import Json

FAILED: Final = "FailedCreate"
START_S: Final = 120.0
_BEFORE_THE_REASON: Final = "failed error: "
_SECOND: Final = len("2026-01-31T23:59:59")


def why_not_made(pods: Collection[str], events: Iterable[Json]) -> str:
    """Return why one of `pods` could not be created, from the Events of the StatefulSet, or an empty text.

    The result is about the first pod whose last Event is a failure.
    """
    for pod in pods:
        about = [event for event in events if f"Pod {pod} " in f"{event.get('message', '')} "]
        if about and (last := max(about, key=_when))["reason"] == FAILED:
            return _reason(last)
    return ""


def why_not_bound(claims: Collection[str], events: Iterable[Json]) -> str:
    """Return the last warning about a claim whose name begins with one of `claims`, or "" if there is no warning.

    If there are warnings about several claims, the claim with the alphabetically first name is chosen.
    """
    about = [event for event in events if event["involvedObject"]["name"].startswith(tuple(claims))]
    if not about:
        return ""
    first = min(event["involvedObject"]["name"] for event in about)
    last = max((event for event in about if event["involvedObject"]["name"] == first), key=_when)
    return f"{first}: {_reason(last)}"


def last_warning(name: str, events: Iterable[Json]) -> str:
    """Return the last warning about the object `name`, or an empty text."""
    about = [event for event in events if event["involvedObject"]["name"] == name]
    return _reason(max(about, key=_when)) if about else ""


def is_slow(made_at: str, now: str) -> bool:
    """True if more than `START_S` seconds lie between `made_at` and `now`, which are in RFC 3339."""
    return made_at != "" and (datetime.fromisoformat(now) - datetime.fromisoformat(made_at)).total_seconds() > START_S


def _reason(event: Json) -> str:
    return str(event.get("message", "")).rpartition(_BEFORE_THE_REASON)[2].strip()


def _when(event: Json) -> str:
    """Return the time of an Event of the old or the new Events API, to the second."""
    at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
    return str(at)[:_SECOND]
