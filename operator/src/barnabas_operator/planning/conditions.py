"""The conditions `Ready` and `ReconciliationPaused` of a resource."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec.structs import replace

from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import READY, RECONCILIATION_PAUSED, Condition, merge_conditions
from barnabas_operator.resources.resource import Resource

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
