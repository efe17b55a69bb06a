"""The conditions of a resource, refusals, the owner among several resources, and the times in their texts.

The choice of the owner if several resources declare the same topic, user or group, and the Cluster that has it.
Resources with an invalid spec are left out, because their topic, user or group is not known.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.kind import READY, RECONCILIATION_PAUSED, Condition, Resource, merge_conditions
from barnabas_operator.resources.schema_check import ResourceT

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


RECONCILED: Final = "Reconciled"
PAUSED: Final = "Paused"
PAUSE: Final = "spec.pause is true, so the operator changes nothing"


def conditions_of(
    resource: Resource,
    problem: Refusal | None,
    now: str,
    *,
    status: Literal["False", "Unknown"] = "False",
    note: str = "",
) -> Iterator[Condition]:
    """Yield the condition `Ready` and, if the resource is paused, `ReconciliationPaused`; `now` is in RFC 3339.

    With a `problem`, `Ready` has the status `status` and reports the problem. Without a problem, `Ready` is Unknown if
    the resource is paused, and otherwise True with the message `note`.
    """
    if problem is not None:
        yield condition(resource, READY, status, problem.reason, problem.message, now)
    elif resource.is_paused:
        yield condition(resource, READY, "Unknown", PAUSED, PAUSE, now)
    else:
        yield condition(resource, READY, "True", RECONCILED, note, now)
    if resource.is_paused:
        yield condition(resource, RECONCILIATION_PAUSED, "True", PAUSED, PAUSE, now)


def condition(
    resource: Resource,
    kind: str,
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str,
    now: str,
) -> Condition:
    """Return a condition for the current generation of the resource."""
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=resource.metadata.generation,
    )


def with_problem(resource: ResourceT, problem: Refusal | None, now: str) -> ResourceT:
    """Return the resource with conditions that report `problem`, or no problem if None; `now` is in RFC 3339."""
    before = resource.status or KINDS[resource.kind].status()
    conditions = merge_conditions(before.conditions, conditions_of(resource, problem, now))
    generation = resource.metadata.generation
    return replace(resource, status=replace(before, conditions=conditions, observed_generation=generation))


def condition_before(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of type `kind` in a status as JSON, or an empty mapping if there is none."""
    found: Mapping[str, Any] = next((each for each in status.get("conditions", ()) if each["type"] == kind), {})
    return found


def owners(declared: Iterable[ResourceT], subject: Callable[[ResourceT], str]) -> dict[str, ResourceT]:
    """Return the owner of each topic, user or group: the oldest resource, or the first of several equally old ones."""
    found: dict[str, ResourceT] = {}
    for each in declared:
        owner = found.get(subject(each))
        if owner is None or _age(each) < _age(owner):
            found[subject(each)] = each
    return found


def owned_by(owner: Resource, name: str) -> Refusal:
    """Return the Refusal for a resource that declares what the older resource `owner` already manages.

    `name` is the name of the topic, user or group in Kafka.
    """
    thing = KINDS[owner.kind].thing.capitalize()
    message = f"{thing} {name} is managed by the older resource {owner.metadata.name}"
    return Refusal(RESOURCE_CONFLICT, f"{message}; delete the newer {owner.kind}")


def other_cluster(resource: Resource, has_it: str | None) -> Refusal | None:
    """Refuse a resource that names another Cluster than `has_it`, which has its topic, user or group."""
    if has_it is None or resource.spec.cluster in (None, has_it):
        return None
    where = f"spec.cluster is {resource.spec.cluster}; allowed: {has_it}"
    return Refusal(NOT_SUPPORTED, f"{where} (a {resource.kind} cannot move to another Cluster)")


def _age(resource: Resource) -> tuple[bool, str]:
    created = resource.metadata.creation_timestamp  # RFC 3339 times in UTC can be sorted as strings.
    return created is None, created or ""


def utc_moment(now_ms: int) -> datetime:
    """Return the time as a datetime in UTC; `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def time_text(now_ms: int) -> str:
    """Return a Kubernetes `Time`: RFC 3339 in UTC, in whole seconds. `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time_text(now_ms: int) -> str:
    """Return a Kubernetes `MicroTime`: RFC 3339 in UTC, with microseconds. `now_ms` counts from the epoch."""
    return datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def seconds_between(first: str, last: str) -> int:
    """Return the rounded seconds from `first` to `last`, both in RFC 3339; negative if `last` is earlier."""
    return round((datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds())


def epoch_s(text: str) -> float:
    """Return the seconds from the epoch to a time in RFC 3339."""
    return datetime.fromisoformat(text).timestamp()
