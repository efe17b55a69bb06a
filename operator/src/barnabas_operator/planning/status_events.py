"""What a change of a resource's status is worth telling as Kubernetes Events. Pure.

Each is one more write, and Topics come by the thousand: that one is made, or ready, is told by its status alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas_operator.planning.broker_steps import HOLDS_REPLICAS, ROLLING, ROLLING_PAUSED, UNDER_REPLICATED
from barnabas_operator.planning.facts import WAITING_FOR_ADDRESSES
from barnabas_operator.planning.kube_event import EventType, kube_event
from barnabas_operator.planning.topic_checks import CLUSTER_NOT_READY
from barnabas_operator.planning.topic_status import REPLICAS_MOVING
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import LOGS_SET_ASIDE, READY, RECORDS_LOST, condition_of
from barnabas_operator.resources.topic import Topic, TopicStatus

PARTITIONS_RAISED: Final = "PartitionsRaised"
UNDER_WAY: Final = frozenset(
    {ROLLING, ROLLING_PAUSED, UNDER_REPLICATED, HOLDS_REPLICAS, REPLICAS_MOVING, WAITING_FOR_ADDRESSES}
)
"""The operator is at work, or was told to wait. Such messages count what is left: only the first is told."""

Json = Mapping[str, Any]


def status_events(resource: Cluster | Topic, before: Json, now: str) -> list[dict[str, Any]]:
    """The Events of a resource with its new status; `before` is the one that it had, as JSON; `now` in RFC 3339."""
    told = (*_not_ready(resource, before), *_losses(resource, before), *_partitions(resource, before))
    return [kube_event(resource, kind, reason, message, now) for kind, reason, message in told]


def _not_ready(resource: Cluster | Topic, before: Json) -> Iterator[tuple[EventType, str, str]]:
    """Why it is not ready: once, until it is for another reason or, where that tells more, in other words."""
    conditions = resource.status.conditions if resource.status is not None else ()
    ready = condition_of(conditions, READY)
    if ready is None or ready.status != "False" or ready.reason == CLUSTER_NOT_READY:
        return
    if condition_of(conditions, ready.reason) is not None:
        return  # A condition of its own, which is told below.
    was = _said(before, READY)
    is_under_way = ready.reason in UNDER_WAY
    if (was.get("status"), was.get("reason")) != ("False", ready.reason):
        yield "Normal" if is_under_way else "Warning", ready.reason, ready.message
    elif was.get("message") != ready.message and not is_under_way:
        yield "Warning", ready.reason, ready.message


def _losses(resource: Cluster | Topic, before: Json) -> Iterator[tuple[EventType, str, str]]:
    """Records that are lost, and logs that are set aside: once for each change, whatever else a Cluster waits for."""
    conditions = resource.status.conditions if resource.status is not None else ()
    for kind in (RECORDS_LOST, LOGS_SET_ASIDE):
        told = condition_of(conditions, kind)
        if told is not None and _said(before, kind).get("message") != told.message:
            yield "Warning", kind, told.message


def _said(before: Json, kind: str) -> Json:
    said: Json = next((each for each in before.get("conditions", ()) if each["type"] == kind), {})
    return said


def _partitions(resource: Cluster | Topic, before: Json) -> Iterator[tuple[EventType, str, str]]:
    had = before.get("partitions")
    count = resource.status.partitions if isinstance(resource.status, TopicStatus) else None
    if not isinstance(resource, Topic) or count is None or had is None or count <= had:
        return
    declared = resource.spec.partitions
    by_whom = "" if declared is not None and count <= declared else ", by somebody else"
    yield "Normal", PARTITIONS_RAISED, f"from {had} to {count} partitions{by_whom}"
