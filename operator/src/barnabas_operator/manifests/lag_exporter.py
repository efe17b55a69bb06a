"""The Kubernetes objects of the lag exporter, which exports the lag of consumer groups to Prometheus."""

from collections.abc import Collection
from typing import Final

from barnabas_operator.manifests.kube_object import (
    CONTAINER_SECURITY,
    MONITORING,
    POD_SECURITY,
    USER_ID,
    ClientAccess,
    KubeObject,
    Neighbours,
    client_access,
    kube_object,
    metrics_endpoint,
    patch_of,
    probe,
    token_mounts,
    token_volumes,
    workload_patches,
)
from barnabas_operator.planning.brokers.local_properties import name_options
from barnabas_operator.planning.brokers.pod_properties import exporter_options, of_exporter
from barnabas_operator.planning.object_names import (
    LAG_EXPORTER_PORT,
    labels,
    lag_exporter_name,
    lag_exporter_selector,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.security import LagExporter, Metrics

CONTAINER: Final = "lag-exporter"
END_S_MAX: Final = 10
PROBE_S: Final = 10
HEALTH: Final = "/healthz"


def lag_exporter_objects(
    cluster: Cluster, image: str, apis: Collection[str], neighbours: Neighbours
) -> list[KubeObject]:
    """Return the objects of the lag exporter, or an empty list if the Cluster declares no lag exporter.

    The PodMonitor is left out if `apis` lacks the API group of PodMonitors. `image` is the operator's image, which is
    used if the Cluster declares no image.
    """
    declared = cluster.spec.lag_exporter
    if declared is None:
        return []
    deployment = _deployment(cluster, declared, declared.image or image)
    return [deployment, *([_pod_monitor(cluster, declared, neighbours)] if MONITORING in apis else [])]


def _deployment(cluster: Cluster, declared: LagExporter, image: str) -> KubeObject:
    """Return the Deployment. It has one pod, because two pods would export every metric twice."""
    name, chosen = cluster.metadata.name, dict(lag_exporter_selector(cluster.metadata.name))
    access, metrics = client_access(cluster, lag_exporter_name(name)), of_exporter(cluster)
    template = declared.template
    return kube_object(
        "apps/v1",
        "Deployment",
        cluster,
        lag_exporter_name(name),
        more_labels=chosen,
        patches=workload_patches(cluster, template.deployment, template.pod, template.container, CONTAINER),
        spec={
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": chosen},
            "template": {
                "metadata": {"labels": {**labels(name), **chosen}},
                "spec": {
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": END_S_MAX,
                    "securityContext": {**POD_SECURITY, **({"fsGroup": USER_ID} if access.secret else {})},
                    **({"volumes": [*access.volumes, *token_volumes(metrics)]} if access.secret else {}),
                    "containers": [_container(access, metrics, declared, image)],
                },
            },
        },
    )


def _container(access: ClientAccess, metrics: Metrics | None, declared: LagExporter, image: str) -> KubeObject:
    resources = declared.resources
    return {
        "name": CONTAINER,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": ["lag-exporter", *_options(access, metrics, declared)],
        "ports": [{"name": "http", "containerPort": LAG_EXPORTER_PORT, "protocol": "TCP"}],
        "resources": {"requests": dict(resources.requests), "limits": dict(resources.limits)},
        "securityContext": dict(CONTAINER_SECURITY),
        **({"volumeMounts": [*access.mounts, *token_mounts(metrics)]} if access.secret else {}),
        "livenessProbe": {**probe(metrics, HEALTH), "periodSeconds": PROBE_S, "failureThreshold": 6},
        "readinessProbe": {**probe(metrics, HEALTH), "periodSeconds": PROBE_S, "failureThreshold": 1},
    }


def _options(access: ClientAccess, metrics: Metrics | None, declared: LagExporter) -> list[str]:
    return [
        f"--bootstrap={access.bootstrap}",
        *access.options,
        f"--listen-address=:{LAG_EXPORTER_PORT}",
        *exporter_options(metrics),
        *name_options(declared),
    ]


def _pod_monitor(cluster: Cluster, declared: LagExporter, neighbours: Neighbours) -> KubeObject:
    name = cluster.metadata.name
    relabelings = [{"targetLabel": "cluster", "replacement": name}]
    endpoint = metrics_endpoint(of_exporter(cluster), cluster.metadata, lag_exporter_name(name), relabelings)
    return kube_object(
        MONITORING,
        "PodMonitor",
        cluster,
        lag_exporter_name(name),
        more_labels={**lag_exporter_selector(name), **neighbours.monitor_labels},
        patches=[patch_of(declared.template.pod_monitor)],
        spec={
            "selector": {"matchLabels": dict(lag_exporter_selector(name))},
            "podMetricsEndpoints": [endpoint],
        },
    )
