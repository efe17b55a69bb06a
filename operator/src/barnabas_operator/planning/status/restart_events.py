"""The Kubernetes Event about a Cluster when a broker restarts, and why. Pure."""

from typing import Any, Final

from barnabas_operator.planning.brokers.pods import BrokerPod
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.resources.cluster import Cluster

BROKER_RESTARTED: Final = "BrokerRestarted"


def why_restarted(pod: BrokerPod) -> str:
    """Return why a pod must restart."""
    if pod.stale:
        return f"it {pod.stale}"
    if pod.restart_asked:
        return "its annotation requests it"
    if pod.is_cut_off:
        return "its ServiceAccount was deleted, and with it its access to the Kubernetes API"
    if pod.is_down:
        return "it is not running, and the Cluster has changed since its pod was created"
    return "the Cluster has changed since its pod was created"


def restart_event(cluster: Cluster, pod: BrokerPod, now: str) -> dict[str, Any]:
    """The Event of a restart; `now` in RFC 3339."""
    message = f"broker {pod.broker_id} restarts: {why_restarted(pod)}"
    event = kube_event(cluster, "Normal", BROKER_RESTARTED, message, now)
    namespace = event["involvedObject"]["namespace"]
    return {**event, "related": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.name}}
