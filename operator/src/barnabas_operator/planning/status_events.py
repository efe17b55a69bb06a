"""The Kubernetes Events for a change to a resource's status.

A resource that is created or becomes ready gets no Event, because thousands of Topics would mean thousands of writes.
"""

from collections.abc import Iterator
from typing import Any, Final

from barnabas_operator.planning.brokers.broker_steps import HOLDS_REPLICAS
from barnabas_operator.planning.brokers.pods import WAITING_FOR_ADDRESSES
from barnabas_operator.planning.conditions import PAUSED, condition_before
from barnabas_operator.planning.kube_event import Said, kube_event
from barnabas_operator.planning.maintenance.run_state import BEGINS_AGAIN
from barnabas_operator.planning.maintenance.run_status import DELETING, RUNNING
from barnabas_operator.planning.maintenance.run_turns import OTHER_RUN
from barnabas_operator.planning.refusal import CLUSTER_NOT_READY
from barnabas_operator.planning.rules_of_kinds import rules_of
from barnabas_operator.planning.status.readiness import STARTING
from barnabas_operator.planning.status.terminating_pods import PODS_ENDING
from barnabas_operator.planning.topics.topic_status import REPLICAS_MOVING
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_meta import CLAIMS_DELETED, LOGS_SET_ASIDE, READY, RECORDS_LOST, condition_of
from barnabas_operator.resources.resource import Resource

UNDER_WAY: Final = frozenset(
    {
        BEGINS_AGAIN,
        DELETING,
        HOLDS_REPLICAS,
        OTHER_RUN,
        PODS_ENDING,
        REPLICAS_MOVING,
        RUNNING,
        STARTING,
        WAITING_FOR_ADDRESSES,
    }
)
"""The reasons of `Ready` that report work in progress.

The messages with these reasons count the remaining work, so only the first message becomes an Event.
"""
QUIET: Final = frozenset({CLUSTER_NOT_READY, PAUSED})


def status_events(resource: Resource, before: Json, now: str) -> list[dict[str, Any]]:
    """Return the Events of a resource with its new status; `before` is the old status as JSON, `now` is in RFC 3339."""
    of_kind = rules_of(resource.kind).events(resource, before)
    events = [*_not_ready(resource, before), *_losses(resource, before), *of_kind]
    return [kube_event(resource, kind, reason, message, now) for kind, reason, message in events]


def _not_ready(resource: Resource, before: Json) -> Iterator[Said]:
    """Yield an Event that says why the resource is not ready, if the reason or the message is new.

    A reason in `QUIET` gets no Event, nor does a reason that is the type of another condition, which has its own Event.
    A reason in `UNDER_WAY` gets none if only the message is new.
    """
    conditions = resource.conditions
    ready = condition_of(conditions, READY)
    if ready is None or ready.status == "True" or ready.reason in QUIET:
        return
    if condition_of(conditions, ready.reason) is not None:
        return  # Ready repeats the problem of another condition, and that condition has its own Event.
    was = condition_before(before, READY)
    is_under_way = ready.reason in UNDER_WAY
    if was.get("reason") != ready.reason:
        yield "Normal" if is_under_way else "Warning", ready.reason, ready.message
    elif was.get("message") != ready.message and not is_under_way:
        yield "Warning", ready.reason, ready.message


def _losses(resource: Resource, before: Json) -> Iterator[Said]:
    """Yield an Event if a condition about lost records, deleted claims or logs of unknown topics has a new message."""
    conditions = resource.conditions
    for kind in (RECORDS_LOST, LOGS_SET_ASIDE, CLAIMS_DELETED):
        reported = condition_of(conditions, kind)
        if reported is not None and condition_before(before, kind).get("message") != reported.message:
            yield "Warning", kind, reported.message
