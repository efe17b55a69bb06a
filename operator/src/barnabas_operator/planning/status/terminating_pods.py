"""Pods that should have ended, and why they have not. Pure."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from barnabas_operator.resources.json_types import Json

PODS_ENDING: Final = "PodsEnding"
PODS_OVERDUE: Final = "PodsOverdue"


class TerminatingPod(NamedTuple):
    """A pod. `ends_at` is the end of its grace period (RFC 3339), "" if it is not deleted; `node` may be ""."""

    name: str
    node: str
    ends_at: str

    def is_overdue(self, now: str) -> bool:
        """True if its kubelet has had the time that it asked for; `now` in RFC 3339, both to the second in UTC."""
        return "" < self.ends_at < now


def terminating_pod(found: Json) -> TerminatingPod:
    """Return the pod in an object of the API server."""
    meta = found["metadata"]
    return TerminatingPod(meta["name"], found.get("spec", {}).get("nodeName", ""), meta.get("deletionTimestamp", ""))


def is_away(node: Json | None) -> bool:
    """True if the kubelet of a node reports nothing, or the node (None) no longer exists."""
    conditions = node.get("status", {}).get("conditions", ()) if node is not None else ()
    return all(each["status"] != "True" for each in conditions if each["type"] == "Ready")


def why_not_ended(overdue: Iterable[TerminatingPod], away: Collection[str]) -> str:
    """Yield a sentence for each pod; `away` are the names of nodes that report nothing."""
    return "; ".join(_why(pod, is_node_away=pod.node in away) for pod in overdue)


def _why(pod: TerminatingPod, *, is_node_away: bool) -> str:
    late = f"{pod.name} should have ended at {pod.ends_at}"
    if not is_node_away:
        return f"{late}; its node {pod.node} is ready; check its kubelet"
    way_on = f"if the node is gone for good, run: kubectl delete node {pod.node}"
    return f"{late}, and its node {pod.node} is not ready: Kubernetes waits for the node; {way_on}"
