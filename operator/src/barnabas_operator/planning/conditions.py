"""A resource's conditions: whether it is as declared, or why not, or that nothing is done for it. Pure."""

from collections.abc import Iterator
from typing import Final, Literal

from barnabas_operator.planning.topic_checks import Refusal
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.object_meta import READY, RECONCILIATION_PAUSED, Condition
from barnabas_operator.resources.topic import Topic

RECONCILED: Final = "Reconciled"
PAUSED: Final = "Paused"
PAUSE: Final = "spec.pause is true: nothing is changed"


def conditions_of(
    resource: Cluster | Topic,
    problem: Refusal | None,
    now: str,
    *,
    status: Literal["False", "Unknown"] = "False",
    note: str = "",
) -> Iterator[Condition]:
    """`Ready` always, for the columns show nothing else; that it is paused beside it. `now` in RFC 3339.

    `status` is that of a `problem`, `note` what one that is ready says besides.
    """
    if problem is not None:
        yield condition(resource, READY, status, problem.reason, problem.message, now)
    elif resource.spec.pause:
        yield condition(resource, READY, "Unknown", PAUSED, PAUSE, now)
    else:
        yield condition(resource, READY, "True", RECONCILED, note, now)
    if resource.spec.pause:
        yield condition(resource, RECONCILIATION_PAUSED, "True", PAUSED, PAUSE, now)


def condition(
    resource: Cluster | Topic,
    kind: str,
    status: Literal["True", "False", "Unknown"],
    reason: str,
    message: str,
    now: str,
) -> Condition:
    """About the resource as it is declared now."""
    return Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=now,
        observed_generation=resource.metadata.generation,
    )
