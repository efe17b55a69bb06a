"""What `spec.scaling.target` says of its replicas, and of those that it had before a reset. Pure."""

from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from barnabas_operator.planning.object_names import CLUSTER_LABEL, NAME_LABEL, OPERATOR_NAME
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.consumer_group import ScaleTarget
from barnabas_operator.resources.foreign_json import foreign_json
from barnabas_operator.resources.json_types import Json

BEFORE_RESET: Final = "barnabas.dev/before-reset"
"""On the target, from before it is scaled down for a reset until it is scaled up again."""
TARGET_NOT_FOUND: Final = "TargetNotFound"
TARGET_REFUSED: Final = "TargetRefused"
TARGET_BUSY: Final = "TargetBusy"
"""It is scaled down for a reset of another group."""


class BeforeReset(Struct, frozen=True):
    """What the target is scaled up to again. A process that is killed in between leaves this to the next."""

    group: str
    """The ConsumerGroup by its name, not the group's id."""
    reset: str
    """`spec.offsets.reset.id`."""
    replicas: Annotated[int, Meta(ge=0)]
    since: str = ""
    """When the target was first seen at 0, RFC 3339."""
    gave_up: str = ""
    """Why the reset was given up: the target is scaled up again, and this one is not tried once more."""
    is_up: bool = False
    """It was given up, and the target had replicas since: one that has none later has none for another reason."""


class TargetScale(NamedTuple):
    """The scale of a target, as it was read from Kubernetes."""

    replicas: int
    """As they are declared: pods that end may still be there."""
    version: str
    """A change of the target since then makes what is written on the ground of this a conflict."""
    before: BeforeReset | None = None


def scale_of(target: ScaleTarget, found: Json | None) -> TargetScale | Refusal:
    """What the API server has of that name, None where there is nothing."""
    if found is None:
        message = f"spec.scaling.target: there is no {named(target)} in this namespace; allowed: one that is there"
        return Refusal(TARGET_NOT_FOUND, message)
    meta = found["metadata"]
    labels = meta.get("labels") or {}
    cluster = labels.get(CLUSTER_LABEL)
    if labels.get(NAME_LABEL) == OPERATOR_NAME:
        message = f"spec.scaling.target: {named(target)} is the operator, which nobody would scale up again"
        return Refusal(TARGET_REFUSED, f"{message}; allowed: what runs the group's consumers")
    if cluster is not None:
        message = f"spec.scaling.target: {named(target)} belongs to the Cluster {cluster}, which says how many it has"
        return Refusal(TARGET_REFUSED, f"{message}; allowed: what runs the group's consumers")
    text = (meta.get("annotations") or {}).get(BEFORE_RESET)
    before = foreign_json(text, BeforeReset) if text is not None else None
    if text is not None and before is None:
        message = f"{named(target)} has the annotation {BEFORE_RESET}: {text}, which cannot be read; allowed: scale it"
        return Refusal(TARGET_REFUSED, f"{message} as it shall be and take the annotation away")
    return TargetScale(found["spec"].get("replicas", 1), meta["resourceVersion"], before)


def before_text(before: BeforeReset | None) -> str | None:
    """The annotation's value; None takes it away."""
    return msgspec.json.encode(before).decode() if before is not None else None


def named(target: ScaleTarget) -> str:
    """The target as messages name it."""
    return f"{target.kind} {target.name}"
