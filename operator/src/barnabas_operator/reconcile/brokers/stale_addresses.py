"""Annotates the pods of brokers that advertise an outdated address, so that these pods are restarted."""

import logging

from barnabas_operator.kube.api import KubeApi
from barnabas_operator.kube.gather import RESTART_ASKED
from barnabas_operator.planning.brokers.given_addresses import stale_brokers
from barnabas_operator.planning.brokers.pods import PodsState
from barnabas_operator.planning.object_names import STALE
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


async def mark_stale_pods(api: KubeApi, cluster: Cluster, pods: PodsState) -> None:
    """Annotate the pods of brokers that advertise an outdated address, so that these pods restart one by one.

    Call this function before the StatefulSet is changed, because only the StatefulSet stores the addresses that the
    running brokers advertise. Raises KubeUnreachable and KubeRefused.
    """
    for broker_id, why in stale_brokers(cluster, pods).items():
        pod, namespace = pods.pods[broker_id], cluster.metadata.namespace or "default"
        log.info("%s/%s: %s", namespace, pod.name, why)
        meta = {"uid": pod.uid, "annotations": {RESTART_ASKED: "true", STALE: why}}
        await api.patch("Pod", namespace, pod.name, {"metadata": meta})
