"""What a change of a resource's status is worth telling as Kubernetes Events. Pure.

Each is one more write, and Topics come by the thousand: that one is made, or ready, is told by its status alone.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from barnabas_operator.planning.broker_steps import HOLDS_REPLICAS, ROLLING_PAUSED
from barnabas_operator.planning.conditions import PAUSED
from barnabas_operator.planning.ending_pods import PODS_ENDING
from barnabas_operator.planning.facts import WAITING_FOR_ADDRESSES
from barnabas_operator.planning.kube_event import EventType, kube_event
from barnabas_operator.planning.metadata_version import METADATA_VERSION
from barnabas_operator.planning.topic_checks import CLUSTER_NOT_READY
from barnabas_operator.planning.topic_status import REPLICAS_MOVING
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import (
    CLAIMS_DELETED,
    LOGS_SET_ASIDE,
    READY,
    REBALANCE_PROPOSED,
    RECORDS_LOST,
    ROLLING,
    Condition,
    condition_of,
)
from barnabas_operator.resources.topic import Topic

METADATA_VERSION_RAISED: Final = "MetadataVersionRaised"
PARTITIONS_RAISED: Final = "PartitionsRaised"
ROLLED: Final = "Rolled"
UNDER_WAY: Final = frozenset({HOLDS_REPLICAS, PODS_ENDING, REPLICAS_MOVING, WAITING_FOR_ADDRESSES})
"""The operator is at work. Such messages count what is left: only the first is told."""
QUIET: Final = frozenset({CLUSTER_NOT_READY, PAUSED})

Json = Mapping[str, Any]


def status_events(resource: Cluster | Topic, before: Json, now: str) -> list[dict[str, Any]]:
    """The Events of a resource with its new status; `before` is the one that it had, as JSON; `now` in RFC 3339."""
    told = [*_not_ready(resource, before), *_losses(resource, before)]
    if isinstance(resource, Cluster):
        told += [*_recovered(resource, before), *_rolls(resource, before), *_proposal(resource, before)]
        told += _metadata_version(resource, before)
    else:
        told += _partitions(resource, before)
    return [kube_event(resource, kind, reason, message, now) for kind, reason, message in told]


def _recovered(cluster: Cluster, before: Json) -> Iterator[tuple[EventType, str, str]]:
    """That it is ready again, and what was the matter."""
    ready, was = condition_of(_conditions(cluster), READY), _said(before, READY)
    if ready is not None and ready.status == "True" and was.get("status", "True") != "True" and was["reason"] != PAUSED:
        yield "Normal", READY, f"is ready; it was not, for {was['reason']}: {was.get('message', '')}"


def _rolls(cluster: Cluster, before: Json) -> Iterator[tuple[EventType, str, str]]:
    """That brokers begin to restart, that this is paused, and that it is over."""
    rolling, was = condition_of(_conditions(cluster), ROLLING), _said(before, ROLLING)
    if rolling is None or _phase(rolling.status, rolling.reason) == _phase(was.get("status"), was.get("reason")):
        return
    yield "Normal", _phase(rolling.status, rolling.reason), rolling.message


def _phase(status: str | None, reason: str | None) -> str:
    if status != "True":
        return ROLLED
    return ROLLING_PAUSED if reason == ROLLING_PAUSED else ROLLING


def _not_ready(resource: Cluster | Topic, before: Json) -> Iterator[tuple[EventType, str, str]]:
    """Why it is not ready: once, until it is for another reason or, where that tells more, in other words."""
    conditions = _conditions(resource)
    ready = condition_of(conditions, READY)
    if ready is None or ready.status == "True" or ready.reason in QUIET:
        return
    if condition_of(conditions, ready.reason) is not None:
        return  # A condition of its own, which is told below.
    was = _said(before, READY)
    is_under_way = ready.reason in UNDER_WAY
    if was.get("reason") != ready.reason:
        yield "Normal" if is_under_way else "Warning", ready.reason, ready.message
    elif was.get("message") != ready.message and not is_under_way:
        yield "Warning", ready.reason, ready.message


def _losses(resource: Cluster | Topic, before: Json) -> Iterator[tuple[EventType, str, str]]:
    """Records and disks that are lost, logs that are set aside: once for each change, whatever a Cluster waits for."""
    conditions = _conditions(resource)
    for kind in (RECORDS_LOST, LOGS_SET_ASIDE, CLAIMS_DELETED):
        told = condition_of(conditions, kind)
        if told is not None and _said(before, kind).get("message") != told.message:
            yield "Warning", kind, told.message


def _conditions(resource: Cluster | Topic) -> tuple[Condition, ...]:
    return resource.status.conditions if resource.status is not None else ()


def _said(before: Json, kind: str) -> Json:
    said: Json = next((each for each in before.get("conditions", ()) if each["type"] == kind), {})
    return said


def _proposal(cluster: Cluster, before: Json) -> Iterator[tuple[EventType, str, str]]:
    """Once, though its numbers change."""
    told = condition_of(_conditions(cluster), REBALANCE_PROPOSED)
    if told is not None and not _said(before, REBALANCE_PROPOSED):
        yield "Normal", REBALANCE_PROPOSED, told.message


def _metadata_version(cluster: Cluster, before: Json) -> Iterator[tuple[EventType, str, str]]:
    had = before.get("metadataVersion")
    has = cluster.status.metadata_version if cluster.status is not None else None
    if has is not None and had is not None and has > had:
        message = f"{METADATA_VERSION} from {had} to {has}: brokers that do not support it no longer start"
        yield "Normal", METADATA_VERSION_RAISED, message


def _partitions(topic: Topic, before: Json) -> Iterator[tuple[EventType, str, str]]:
    had = before.get("partitions")
    count = topic.status.partitions if topic.status is not None else None
    if count is None or had is None or count <= had:
        return
    declared = topic.spec.partitions
    by_whom = "" if declared is not None and count <= declared else ", by somebody else"
    yield "Normal", PARTITIONS_RAISED, f"from {had} to {count} partitions{by_whom}"
