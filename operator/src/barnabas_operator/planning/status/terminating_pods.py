"""Pods that should have ended, and the reasons why they have not."""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from barnabas_operator.resources.json_types import Json

PODS_ENDING: Final = "PodsEnding"
PODS_OVERDUE: Final = "PodsOverdue"


class TerminatingPod(NamedTuple):
    """A pod with its node and the end of its grace period.

    `ends_at` is in RFC 3339, or "" if the pod is not deleted. `node` is "" if the pod is not scheduled.
    """

    name: str
    node: str
    ends_at: str

    def is_overdue(self, now: str) -> bool:
        """True if the grace period of the pod has ended; `now` is in RFC 3339, in UTC, to the second."""
        return "" < self.ends_at < now


def terminating_pod(found: Json) -> TerminatingPod:
    """Return the `TerminatingPod` for a pod's JSON from the API server."""
    meta = found["metadata"]
    return TerminatingPod(meta["name"], found.get("spec", {}).get("nodeName", ""), meta.get("deletionTimestamp", ""))


def is_away(node: Json | None) -> bool:
    """True if the node is not ready, or no longer exists (`node` is None)."""
    conditions = node.get("status", {}).get("conditions", ()) if node is not None else ()
    return all(each["status"] != "True" for each in conditions if each["type"] == "Ready")


def why_not_ended(overdue: Iterable[TerminatingPod], away: Collection[str]) -> str:
    """Return why each pod in `overdue` still exists after its grace period.

    `away` are the names of the nodes that are not ready or no longer exist.
    """
    return "; ".join(_why(pod, is_node_away=pod.node in away) for pod in overdue)


def _why(pod: TerminatingPod, *, is_node_away: bool) -> str:
    late = f"{pod.name} should have ended at {pod.ends_at}"
    if not is_node_away:
        return f"{late}, and its node {pod.node} is ready; check the kubelet of the node"
    way_on = f"if the node is gone for good, run: kubectl delete node {pod.node}"
    return f"{late}, and its node {pod.node} is not ready, so Kubernetes waits for the node; {way_on}"
