"""Asks brokers to restart that tell clients an address which Kubernetes has taken away."""

import logging

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import RESTART_ASKED
from barnabas_operator.planning.brokers.given_addresses import stale_brokers
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.object_names import STALE
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


async def mark_stale_pods(api: KubeApi, cluster: Cluster, pods: PodsState) -> None:
    """They restart as any others, one by one and where it is safe. Raises KubeUnreachable and KubeRefused.

    The marks are on the pods before the StatefulSet forgets what it told them: who dies in between has lost nothing.
    """
    for broker_id, why in stale_brokers(cluster, pods).items():
        pod, namespace = pods.pods[broker_id], cluster.metadata.namespace or "default"
        log.info("%s/%s: %s", namespace, pod.name, why)
        meta = {"uid": pod.uid, "annotations": {RESTART_ASKED: "true", STALE: why}}
        await api.patch("Pod", namespace, pod.name, {"metadata": meta})
