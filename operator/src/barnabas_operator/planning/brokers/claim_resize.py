"""The progress of the resize of a claim, as the claim's status reports it."""

from typing import Final, NamedTuple

from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.quantity import quantity_value

RESIZING: Final = "Resizing"
PENDING: Final = "FileSystemResizePending"
FAILED: Final = "ResizeFailed"
CANNOT_GROW: Final = "VolumeCannotGrow"
_ERRORS: Final = frozenset({"ControllerResizeError", "NodeResizeError"})
_INFEASIBLE: Final = frozenset({"ControllerResizeInfeasible", "NodeResizeInfeasible"})
_ON: Final = (
    "the file system grows when the node mounts the volume; if the size does not change, restart the broker: "
    "kubectl annotate pod {pod} barnabas.dev/manual-rolling-update=true"
)


class Resize(NamedTuple):
    """The progress of a resize: the reason `RESIZING`, `PENDING` or `FAILED`, and a message."""

    reason: str
    message: str


def resize_of(found: Json, pod: str) -> Resize | None:
    """Return the progress of the resize of a pod's claim, or None if it has the requested size or no volume yet."""
    status, asked = found.get("status", {}), str(found["spec"]["resources"]["requests"]["storage"])
    has = status.get("capacity", {}).get("storage")
    if has is None or quantity_value(has) >= quantity_value(asked):
        return None
    sizes = f"the claim requests {asked}, but its volume has {has}"
    said = {each["type"]: each.get("message", "") for each in status.get("conditions", ()) if each["status"] == "True"}
    state = status.get("allocatedResourceStatuses", {}).get("storage", "")
    failed = [f"{kind}: {said[kind]}" for kind in sorted(_ERRORS & said.keys())]
    if failed or state in _INFEASIBLE:
        return Resize(FAILED, f"{sizes}: {'; '.join(failed) or state}")
    if PENDING in said:
        return Resize(PENDING, f"{sizes}: {_ON.format(pod=pod)}")
    return Resize(RESIZING, sizes)
