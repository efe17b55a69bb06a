"""The Kubernetes Event for the restart of a broker, with the reason."""

from typing import Any, Final

from barnabas_operator.planning.brokers.pods import BrokerPod
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.resources.cluster import Cluster

BROKER_RESTARTED: Final = "BrokerRestarted"


def why_restarted(pod: BrokerPod) -> str:
    """Return why the pod of a broker must restart."""
    if pod.stale:
        return f"it {pod.stale}"
    if pod.restart_asked:
        return "an annotation of the pod requests a restart"
    if pod.is_cut_off:
        return "the ServiceAccount was deleted, so the broker has no access to the Kubernetes API"
    if pod.is_down:
        return "the broker is not running, and the Cluster has changed since the broker's pod was created"
    return "the Cluster has changed since the broker's pod was created"


def restart_event(cluster: Cluster, pod: BrokerPod, now: str) -> dict[str, Any]:
    """Return the Event for the restart of a broker; `now` is in RFC 3339."""
    message = f"broker {pod.broker_id} restarts: {why_restarted(pod)}"
    event = kube_event(cluster, "Normal", BROKER_RESTARTED, message, now)
    namespace = event["involvedObject"]["namespace"]
    return {**event, "related": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.name}}
