"""The brokers' PodDisruptionBudget, NetworkPolicy and PodMonitor."""

from typing import Final

from barnabas_operator.manifests.kube_object import KubeObject, kube_object, patch_of
from barnabas_operator.manifests.metrics_access import metrics_endpoint
from barnabas_operator.manifests.neighbours import Neighbours
from barnabas_operator.planning.brokers.protected_metrics import of_brokers
from barnabas_operator.planning.brokers.security_stages import is_passing, reported_stage
from barnabas_operator.planning.object_names import (
    PASSING_PORT,
    REPLICATION_PORT,
    brokers_name,
    lag_exporter_selector,
    maintenance_selector,
    selector,
)
from barnabas_operator.resources.cluster import Cluster

MONITORING: Final = "monitoring.coreos.com/v1"


def disruption_budget(cluster: Cluster) -> KubeObject:
    """Return the PodDisruptionBudget, which allows one broker to be unavailable.

    A broker is ready when its replicas are in sync. A broker that is not ready may be evicted only while all other
    brokers are ready, because it may have the only copy of a record. A single broker may always be evicted, because
    otherwise it could never be restarted.
    """
    name, is_single = cluster.metadata.name, cluster.spec.brokers.replicas == 1
    return kube_object(
        "policy/v1",
        "PodDisruptionBudget",
        cluster,
        brokers_name(name),
        patches=[patch_of(cluster.spec.template.pod_disruption_budget)],
        spec={
            "maxUnavailable": 1,
            "selector": {"matchLabels": dict(selector(name))},
            "unhealthyPodEvictionPolicy": "AlwaysAllow" if is_single else "IfHealthyBudget",
        },
    )


def network_policy(cluster: Cluster, neighbours: Neighbours) -> KubeObject:
    """Return the NetworkPolicy. Only brokers, operator, lag exporter and maintenance runs reach the replication port.

    Everybody reaches the metrics port, and the ports of listeners without `networkPolicyPeers`.
    """
    name = cluster.metadata.name
    brokers = {"podSelector": {"matchLabels": dict(selector(name))}}
    runs = {"podSelector": {"matchLabels": dict(maintenance_selector(name))}}
    ports = (REPLICATION_PORT, PASSING_PORT) if is_passing(cluster) else (REPLICATION_PORT,)
    return kube_object(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        cluster,
        brokers_name(name),
        patches=[patch_of(cluster.spec.template.network_policy)],
        spec={
            "podSelector": brokers["podSelector"],
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [brokers, runs, *_exporter_peers(cluster), *neighbours.operator_peers],
                    "ports": [{"port": port, "protocol": "TCP"} for port in ports],
                },
                *_of_clients(cluster),
            ],
        },
    )


def _exporter_peers(cluster: Cluster) -> list[KubeObject]:
    if cluster.spec.lag_exporter is None:
        return []
    return [{"podSelector": {"matchLabels": dict(lag_exporter_selector(cluster.metadata.name))}}]


def _of_clients(cluster: Cluster) -> list[KubeObject]:
    listeners = cluster.spec.listeners
    open_ports: list[int | str] = [each.port for each in listeners if not each.network_policy_peers]
    guarded = [each for each in listeners if each.network_policy_peers]
    return [
        {"ports": [{"port": port, "protocol": "TCP"} for port in (*open_ports, "http")]},
        *(
            {"from": list(each.network_policy_peers), "ports": [{"port": each.port, "protocol": "TCP"}]}
            for each in guarded
        ),
    ]


def _labels_of_series(cluster: str) -> list[dict[str, object]]:
    """Return the relabelings that add the labels `cluster` and `broker` to every series."""
    pod = "__meta_kubernetes_pod_name"
    return [
        {"targetLabel": "cluster", "replacement": cluster},
        {"sourceLabels": [pod], "regex": ".+-([0-9]+)", "targetLabel": "broker"},
    ]


def pod_monitor(cluster: Cluster, neighbours: Neighbours) -> KubeObject:
    """Return the PodMonitor of the brokers, which needs the Prometheus operator's CRD."""
    name = cluster.metadata.name
    metrics, relabelings = of_brokers(cluster, reported_stage(cluster)), _labels_of_series(name)
    return kube_object(
        MONITORING,
        "PodMonitor",
        cluster,
        brokers_name(name),
        more_labels=neighbours.monitor_labels,
        patches=[patch_of(cluster.spec.template.pod_monitor)],
        spec={
            "selector": {"matchLabels": dict(selector(name))},
            "podMetricsEndpoints": [metrics_endpoint(metrics, cluster.metadata, brokers_name(name), relabelings)],
        },
    )
