"""The number of replicas of the workload in `spec.scaling.target`, now and before a reset scaled it down."""

from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from barnabas_operator.planning.object_names import CLUSTER_LABEL, NAME_LABEL, OPERATOR_NAME
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ScaleTarget
from barnabas_operator.resources.foreign_json import foreign_json
from barnabas_operator.resources.json_types import Json

BEFORE_RESET: Final = "barnabas.dev/before-reset"
"""The annotation of a target with the number of replicas that it had before a reset scaled it down."""
TARGET_NOT_FOUND: Final = "TargetNotFound"
TARGET_REFUSED: Final = "TargetRefused"
TARGET_BUSY: Final = "TargetBusy"
"""The reason for refusing a reset: the target is scaled down for a reset of another group."""


class BeforeReset(Struct, frozen=True):
    """The content of the annotation `BEFORE_RESET`: the replicas to restore after a reset, and its progress."""

    group: str
    """The name of the ConsumerGroup, which may differ from the group id."""
    reset: str
    """The id of the reset for which the target was scaled down."""
    replicas: Annotated[int, Meta(ge=0)]
    since: str = ""
    """The time in RFC 3339 at which the target was first seen at 0 replicas, or empty."""
    gave_up: str = ""
    """The reason why the reset was given up, or empty. A reset that was given up is not tried again."""
    is_up: bool = False
    """True if the target has been scaled up again after the reset was given up."""


class TargetScale(NamedTuple):
    """The scale of a target as read from Kubernetes."""

    replicas: int
    """The declared number of replicas. More pods may run, because some may be terminating."""
    version: str
    """The resourceVersion of the target, so that a write fails if the target has changed since."""
    before: BeforeReset | None = None


def scale_of(target: ScaleTarget, found: Json | None) -> TargetScale | Refusal:
    """Return the scale of the target, or a refusal if the operator cannot scale the target.

    The operator cannot scale itself, an object of a Cluster, a target that does not exist (`found` is None), or a
    target whose annotation `BEFORE_RESET` cannot be parsed.
    """
    if found is None:
        message = f"spec.scaling.target is {named(target)}, which does not exist in this namespace; create the object"
        return Refusal(TARGET_NOT_FOUND, message)
    meta = found["metadata"]
    labels = meta.get("labels") or {}
    cluster = labels.get(CLUSTER_LABEL)
    if labels.get(NAME_LABEL) == OPERATOR_NAME:
        message = (
            f"spec.scaling.target is {named(target)}, which is the operator; the operator cannot scale itself up from 0"
        )
        return Refusal(TARGET_REFUSED, f"{message}; allowed: the workload that runs the group's consumers")
    if cluster is not None:
        message = f"spec.scaling.target is {named(target)}, but the Cluster {cluster} sets the replicas of this object"
        return Refusal(TARGET_REFUSED, f"{message}; allowed: the workload that runs the group's consumers")
    text = (meta.get("annotations") or {}).get(BEFORE_RESET)
    before = foreign_json(text, BeforeReset) if text is not None else None
    if text is not None and before is None:
        message = f"{named(target)} has the annotation {BEFORE_RESET} with the value {text}, which cannot be parsed"
        return Refusal(
            TARGET_REFUSED, f"{message}; scale the target to the replicas that you need, and remove the annotation"
        )
    return TargetScale(found["spec"].get("replicas", 1), meta["resourceVersion"], before)


def before_text(before: BeforeReset | None) -> str | None:
    """Return the value to set in the annotation `BEFORE_RESET`, or None to remove the annotation."""
    return msgspec.json.encode(before).decode() if before is not None else None


def named(target: ScaleTarget) -> str:
    """Return the kind and name of the target as text, such as `Deployment orders`."""
    return f"{target.kind} {target.name}"
