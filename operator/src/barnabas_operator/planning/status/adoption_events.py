"""That another StatefulSet adopts a broker's pod, as a Kubernetes Event about its Cluster. Pure."""

from typing import Any, Final

from barnabas_operator.planning.brokers.pods import BrokerPod
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.planning.object_names import brokers_name
from barnabas_operator.resources.cluster import Cluster

BROKER_ADOPTED: Final = "BrokerAdopted"


def adoption_event(cluster: Cluster, pod: BrokerPod, now: str) -> dict[str, Any]:
    """The Event of an adoption; `now` in RFC 3339."""
    made_anew = f"the StatefulSet {brokers_name(cluster.metadata.name)} that was made anew"
    message = f"broker {pod.broker_id} runs on: {made_anew} adopts {pod.name}, whose own one is gone"
    event = kube_event(cluster, "Normal", BROKER_ADOPTED, message, now)
    namespace = event["involvedObject"]["namespace"]
    return {**event, "related": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.name}}
