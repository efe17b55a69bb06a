"""The fields that all resources have in common: Kubernetes metadata and status conditions."""

from collections.abc import Iterable
from typing import Annotated, Final, Literal, get_args

from msgspec import Meta, Struct
from msgspec.structs import replace

ApiVersion = Literal["barnabas.dev/v1alpha1"]
"""The API version of the operator's resources."""
API_VERSION: Final[ApiVersion] = get_args(ApiVersion)[0]
GROUP, VERSION = API_VERSION.split("/")

READY: Final = "Ready"
ROLLING: Final = "Rolling"
DRIFTED: Final = "Drifted"
RECONCILIATION_PAUSED: Final = "ReconciliationPaused"
RECORDS_LOST: Final = "RecordsLost"
CLAIMS_DELETED: Final = "ClaimsDeleted"
VOLUMES_RESIZING: Final = "VolumesResizing"
CLAIMS_LARGER: Final = "ClaimsLarger"
NODES_LEFT_OUT: Final = "NodesLeftOut"
SECURITY_CHANGING: Final = "SecurityChanging"
LOGS_SET_ASIDE: Final = "LogsSetAside"
REBALANCE_PROPOSED: Final = "RebalanceProposed"
REBALANCING: Final = "Rebalancing"
WITHIN_OBJECTIVE: Final = "WithinObjective"
OFFSETS_RESET: Final = "OffsetsReset"
SCALING_ACTIVE: Final = "ScalingActive"
"""The type of the condition about scaling, as in a HorizontalPodAutoscaler."""

MESSAGE_LENGTH_MAX: Final = 32_768
"""The maximum length of a message in characters, as in `metav1.Condition`."""

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
    """The metadata of a resource, which the API server or `barnabas up` maintains."""

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
            "the metadata.generation at the last reconciliation; a lower number than in the metadata means that "
            "the last change has not been reconciled yet"
        )
    ),
]


class Condition(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A condition of a resource, as in Kubernetes (`metav1.Condition`)."""

    type: Annotated[str, Meta(description="the type of the condition, such as Ready")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="whether the condition holds")]
    reason: Annotated[str, Meta(description="the reason in one word; docs/how-to/troubleshoot.md lists all reasons")]
    message: Annotated[Message, Meta(description="why, for people")] = ""
    last_transition_time: Annotated[str, Meta(description="when the status of the condition last changed")]
    observed_generation: ObservedGeneration | None = None


Conditions = Annotated[tuple[Condition, ...], Meta(description="the conditions of the resource")]


def shortened(text: str, length_max: int) -> str:
    """Return the text; if it is longer than `length_max` characters, cut it, with an ellipsis at the end."""
    return text if len(text) <= length_max else f"{text[: length_max - 3]}..."


def condition_of(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Return the condition of this type; None if there is none."""
    return next((condition for condition in conditions if condition.type == kind), None)


def merge_conditions(previous: Iterable[Condition], current: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the current conditions. A condition whose status is unchanged keeps its previous transition time."""
    before = {condition.type: condition for condition in previous}
    merged = []
    for condition in current:
        old = before.get(condition.type)
        if old is not None and old.status == condition.status:
            condition = replace(condition, last_transition_time=old.last_transition_time)
        merged.append(condition)
    return tuple(merged)
