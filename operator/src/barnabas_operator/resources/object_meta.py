"""The parts that every resource has: metadata as Kubernetes writes it, and status conditions."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

ApiVersion = Literal["barnabas.dev/v1alpha1"]
"""The API version of this operator; no other place names it."""
API_VERSION: Final[ApiVersion] = get_args(ApiVersion)[0]
GROUP, VERSION = API_VERSION.split("/")

READY: Final = "Ready"
ROLLING: Final = "Rolling"
DRIFTED: Final = "Drifted"
RECONCILIATION_PAUSED: Final = "ReconciliationPaused"
RECORDS_LOST: Final = "RecordsLost"
CLAIMS_DELETED: Final = "ClaimsDeleted"
VOLUMES_RESIZING: Final = "VolumesResizing"
SECURITY_CHANGING: Final = "SecurityChanging"
LOGS_SET_ASIDE: Final = "LogsSetAside"
REBALANCE_PROPOSED: Final = "RebalanceProposed"
REBALANCING: Final = "Rebalancing"
WITHIN_OBJECTIVE: Final = "WithinObjective"
OFFSETS_RESET: Final = "OffsetsReset"
SCALING_ACTIVE: Final = "ScalingActive"
"""The type of the condition, named as that of a HorizontalPodAutoscaler."""

MESSAGE_LENGTH_MAX: Final = 32_768
"""The longest message that `metav1.Condition` allows."""

Message = Annotated[str, Meta(max_length=MESSAGE_LENGTH_MAX)]

ResourceNameText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        description="lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit (RFC 1123)",
    ),
]


class ObjectMeta(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A resource's name and what the API server (or, over files, `barnabas up`) keeps about it."""

    name: ResourceNameText
    namespace: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str | None = None
    generation: int | None = None
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()


ObservedGeneration = Annotated[
    int,
    Meta(
        description=(
            "the metadata.generation of the last reconciliation; if it is lower than that of the "
            "resource, the last change is still to come"
        )
    ),
]


class Condition(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One statement about a resource, as Kubernetes words it (`metav1.Condition`)."""

    type: Annotated[str, Meta(description="the type of the condition, such as Ready")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="whether the condition holds")]
    reason: Annotated[str, Meta(description="the reason in one word; docs/how-to/troubleshoot.md lists them all")]
    message: Annotated[Message, Meta(description="why, for people")] = ""
    last_transition_time: Annotated[str, Meta(description="when the status became what it is")]
    observed_generation: ObservedGeneration | None = None


Conditions = Annotated[
    tuple[Condition, ...], Meta(description="the conditions of the resource, and since when they hold")
]


def shortened(text: str, length_max: int) -> str:
    """Return the text, cut to at most `length_max` characters and ended with an ellipsis."""
    return text if len(text) <= length_max else f"{text[: length_max - 3]}..."


def condition_of(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """The condition of that type, if the resource has one."""
    return next((condition for condition in conditions if condition.type == kind), None)


def merge_conditions(previous: Iterable[Condition], current: Iterable[Condition]) -> tuple[Condition, ...]:
    """The current conditions, each with the transition time of the previous one where its status is the same."""
    before = {condition.type: condition for condition in previous}
    merged = []
    for condition in current:
        old = before.get(condition.type)
        if old is not None and old.status == condition.status:
            condition = replace(condition, last_transition_time=old.last_transition_time)
        merged.append(condition)
    return tuple(merged)
