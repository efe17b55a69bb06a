"""Why a broker restarts, as a Kubernetes Event about its Cluster. The reasons are Strimzi's. Pure."""

from typing import Any, Final, NamedTuple

from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.planning.pods import BrokerPod
from barnabas_operator.resources.cluster import Cluster


class RestartReason(NamedTuple):
    """The word that monitoring looks for, and one for people."""

    word: str
    why: str


MANUAL: Final = RestartReason("MANUAL_ROLLING_UPDATE", "its annotation asks for it")
STUCK: Final = RestartReason("POD_STUCK", "it is not ready, and there is a newer template")
OLD_REVISION: Final = RestartReason("POD_HAS_OLD_REVISION", "it was made from an older template")


def restart_reason(pod: BrokerPod) -> RestartReason:
    """Of a pod that is to restart."""
    if pod.restart_asked:
        return MANUAL
    return OLD_REVISION if pod.is_ready else STUCK


def restart_event(cluster: Cluster, pod: BrokerPod, now: str) -> dict[str, Any]:
    """`now` in RFC 3339."""
    reason = restart_reason(pod)
    event = kube_event(cluster, "Normal", reason.word, f"broker {pod.broker_id} restarts: {reason.why}", now)
    namespace = event["involvedObject"]["namespace"]
    return {**event, "related": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.name}}
