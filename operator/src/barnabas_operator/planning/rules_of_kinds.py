"""The rules for each resource kind: functions for the admission review, the warnings, the Events and the status.

The admission review of changes, for rules that the schema of a CRD cannot express. Conditions report the same
problems later; the review reports them to the user before the change is stored.

The Kubernetes Events for a change to a resource's status. A resource that is created or becomes ready gets no
Event, because thousands of Topics would mean thousands of writes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from barnabas_operator.planning.admission import (
    AdmissionContext,
    Verdict,
    cluster_warnings,
    review_cluster,
    review_topic,
    review_user,
)
from barnabas_operator.planning.brokers.broker_steps import HOLDS_REPLICAS
from barnabas_operator.planning.brokers.pods import WAITING_FOR_ADDRESSES
from barnabas_operator.planning.cluster_state import names_another_run
from barnabas_operator.planning.conditions import (
    CLUSTER_NOT_FOUND,
    CLUSTER_NOT_READY,
    INVALID_SPEC,
    PAUSED,
    Refusal,
    condition_before,
    with_problem,
)
from barnabas_operator.planning.groups.group_status import group_events, unheard
from barnabas_operator.planning.groups.reset_step import review_group
from barnabas_operator.planning.maintenance.observed_run import BEGINS_AGAIN, OTHER_RUN
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.planning.maintenance.run_status import DELETING, RUNNING, run_events
from barnabas_operator.planning.maintenance.run_status import without_cluster as run_without_cluster
from barnabas_operator.planning.object_names import EventText, kube_event
from barnabas_operator.planning.status.cluster_events import PODS_ENDING, cluster_events
from barnabas_operator.planning.status.cluster_status import STARTING
from barnabas_operator.planning.topics.topic_plan import (
    REPLICAS_MOVING,
    deletion_protected,
    topic_events,
    without_cluster,
)
from barnabas_operator.planning.users.user_secret import without_cluster as user_without_cluster
from barnabas_operator.resources.cluster_kind import CLUSTER, KINDS
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.kind import (
    CLAIMS_DELETED,
    LOGS_SET_ASIDE,
    READY,
    RECORDS_LOST,
    Json,
    Resource,
    condition_of,
)
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.schema_check import InvalidResource, ResourceT, resource_of
from barnabas_operator.resources.topic import TOPIC
from barnabas_operator.resources.user import USER


def _allowed(_wanted: Resource, _before: Resource | None, _context: AdmissionContext) -> Verdict:
    return Verdict()


def _review_run(wanted: MaintenanceJob, _before: MaintenanceJob | None, _context: AdmissionContext) -> Verdict:
    """Refuse what would make the job fail, because a MaintenanceJob cannot be corrected after its creation."""
    return Verdict("; ".join(run_problems(wanted.spec)) or None)


def _nothing(_first: object, _second: object) -> Iterable[Any]:
    return ()


class KindRules(NamedTuple):
    """The rules for one resource kind: functions that are called only with resources of that kind."""

    review: Callable[[Any, Any, AdmissionContext], Verdict] = _allowed
    """Return the verdict on a change: the first argument is the desired resource, the second the stored resource.

    The stored resource is None if the resource is created, or if the stored resource cannot be read.
    """
    warnings: Callable[[Json | None, Json | None], Iterable[str]] = _nothing
    """Return warnings about a change from an old object (None on creation) to a new object (None on deletion)."""
    events: Callable[[Any, Json], Iterable[EventText]] = _nothing
    """Return the Events for the change of a resource's status; the second argument is the earlier status as JSON."""
    without_cluster: Callable[[Any, Refusal, str], Resource] = with_problem
    """Return the resource with a status that says why it has no Cluster; the last argument is the time in RFC 3339."""


RULES: Final[Mapping[str, KindRules]] = {
    CLUSTER.name: KindRules(review_cluster, cluster_warnings, cluster_events),
    TOPIC.name: KindRules(review_topic, events=topic_events, without_cluster=without_cluster),
    USER.name: KindRules(review_user, without_cluster=user_without_cluster),
    CONSUMER_GROUP.name: KindRules(review_group, events=group_events, without_cluster=unheard),
    MAINTENANCE_JOB.name: KindRules(_review_run, events=run_events, without_cluster=run_without_cluster),
}
"""The rules for the resources of each kind, by the name of the kind."""


def rules_of(kind: str) -> KindRules:
    """Return the `KindRules` of a kind, or the default `KindRules` if `RULES` has no entry for the kind."""
    return RULES.get(kind, KindRules())


PASSING: Final = (None, CLUSTER_NOT_FOUND, CLUSTER_NOT_READY, INVALID_SPEC)
"""The reasons of the condition `Ready` that the operator replaces if the Cluster of a resource cannot be reached.

The new reason says that the Cluster cannot be reached. None stands for a resource without the condition `Ready`.
"""


def may_go(resource: Resource) -> bool:
    """True if the resource can be deleted without asking the brokers."""
    return bool(resource.spec.deletion_policy == "Retain") or resource.is_paused


def with_waiting(resource: ResourceT, why: str, now: str) -> ResourceT:
    """Return the resource with a status that says why the resource waits for its Cluster.

    If the status is up to date, return the resource unchanged.
    """
    return with_problem(resource, why_waiting(resource, why), now) if has_news(resource) else resource


def has_news(resource: Resource) -> bool:
    """True if the operator must write the status of a resource whose Cluster does not exist or is not ready."""
    if resource.metadata.deletion_timestamp is not None or resource.status is None:
        return True
    ready = condition_of(resource.status.conditions, READY)
    is_old = resource.status.observed_generation != resource.metadata.generation
    return is_old or (ready.reason if ready is not None else None) in PASSING


def why_waiting(resource: Resource, why: str) -> Refusal | None:
    """Return the refusal for a resource whose Cluster is not ready; `why` is the reason.

    Return None for a paused resource that is not being deleted. The refusal for a resource that is being deleted also
    explains the deletion policy.
    """
    if resource.metadata.deletion_timestamp is None:
        return None if resource.is_paused else Refusal(CLUSTER_NOT_READY, why)
    thing, policy = KINDS[resource.kind].thing, resource.spec.deletion_policy
    if policy == "Protect":
        return deletion_protected(f"{thing.capitalize()} {resource.metadata.name}", "another policy")
    at_once = f"if spec.deletionPolicy is changed to Retain, this resource is deleted at once, but not its {thing}"
    return Refusal(
        CLUSTER_NOT_READY, f"{why}; the deletion then follows spec.deletionPolicy, which is {policy}; {at_once}"
    )


def review(old: Json | None, new: Json | None, context: AdmissionContext) -> Verdict:
    """Return the verdict on a change from `old` (None on creation) to `new` (None on deletion).

    An update that neither changes the spec nor names another rebalance plan only gets warnings.
    """
    kind = (new or old or {})["kind"]
    rules = rules_of(kind)
    if new is None and _is_protected(old or {}):
        return _protected(old or {})
    first = Verdict(warnings=tuple(rules.warnings(old, new)))
    if new is None or not (changes(old, new) or names_another_run(old, new)):
        return first
    try:
        wanted = resource_of(KINDS[kind].resource, new)
    except InvalidResource as error:
        return Verdict(str(error))
    verdict = rules.review(wanted, _before(KINDS[kind].resource, old), context)
    return verdict._replace(warnings=(*first.warnings, *verdict.warnings))


def changes(old: Json | None, new: Json) -> bool:
    """True if the resource is new or its spec changes."""
    return old is None or old.get("spec") != new.get("spec")


def _before(kind: type[ResourceT], old: Json | None) -> ResourceT | None:
    """Return the resource before the change, or None if the resource is new or this operator cannot read it."""
    try:
        return resource_of(kind, old) if old is not None else None
    except InvalidResource:
        return None


def _is_protected(old: Json) -> bool:
    return bool(old.get("spec", {}).get("deletionPolicy") == "Protect")


def _protected(old: Json) -> Verdict:
    kind, name = old["kind"], old["metadata"]["name"]
    return Verdict(f"{kind} {name} is not deleted, because spec.deletionPolicy is Protect; first set Delete or Retain")


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


def _not_ready(resource: Resource, before: Json) -> Iterator[EventText]:
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


def _losses(resource: Resource, before: Json) -> Iterator[EventText]:
    """Yield an Event if a condition about lost records, deleted claims or logs of unknown topics has a new message."""
    conditions = resource.conditions
    for kind in (RECORDS_LOST, LOGS_SET_ASIDE, CLAIMS_DELETED):
        reported = condition_of(conditions, kind)
        if reported is not None and condition_before(before, kind).get("message") != reported.message:
            yield "Warning", kind, reported.message
